"use strict";
// Sorts and filters tables, and saves them as CSV. The page is complete without it.
{
  const make = (tag, properties, ...children) => {
    const element = Object.assign(document.createElement(tag), properties);
    element.append(...children);
    return element;
  };
  const button = (text, className, onclick) => make("button", { type: "button", textContent: text, className, onclick });
  const plain = (text) => text.replace(/\s+/g, " ").trim();
  const cellText = (cell) => plain((cell.querySelector(".value") ?? cell).textContent);
  const ascii = (text) => text.replace(/−/g, "-").replace(/(\d),(?=\d{3})/g, "$1");
  const number = (text) => parseFloat(ascii(text).replace(/^[<>+\s]+/, ""));
  // The cells of a row without the plotted column.
  const dataCells = (row) => [...row.cells].filter((cell) => !cell.classList.contains("plot"));
  const rowsOf = (table) => [...table.tBodies[0].rows];

  const save = (title, content) => {
    const name = plain(title).toLowerCase().replace(/[^\p{L}\p{Nd}]+/gu, "-").slice(0, 60);
    const link = make("a", { href: URL.createObjectURL(new Blob([content])), download: `${name}.csv` });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
  };

  const makeSortable = (table) => {
    const names = dataCells(table.tHead.rows[0]);
    const sortBy = (column) => {
      const descending = names[column].getAttribute("aria-sort") !== "descending";
      const rows = rowsOf(table), text = new Map(rows.map((row) => [row, cellText(dataCells(row)[column])]));
      const numeric = rows.filter((row) => !isNaN(number(text.get(row)))).length * 2 > rows.length;
      const key = (row) => (numeric ? number(text.get(row)) : text.get(row));
      const isMissing = (row) => (numeric ? isNaN(key(row)) : !key(row));
      const order = (a, b) => (numeric ? key(a) - key(b) : key(a).localeCompare(key(b)));
      rows.sort((a, b) => isMissing(a) - isMissing(b) || (descending ? -1 : 1) * order(a, b));
      table.tBodies[0].append(...rows);
      names.forEach((name) => name.removeAttribute("aria-sort"));
      names[column].setAttribute("aria-sort", descending ? "descending" : "ascending");
    };
    names.forEach((name, column) => name.replaceChildren(button(name.textContent, "sort", () => sortBy(column))));
  };

  const makeFilterable = (table, tools) => {
    const names = dataCells(table.tHead.rows[0]), rows = rowsOf(table), status = make("span", { role: "status" });
    const filter = () => {
      for (const row of rows) {
        const fits = choices.every(([column, select]) => !select.value || cellText(dataCells(row)[column]) === select.value);
        row.hidden = !fits || !row.textContent.toLowerCase().includes(input.value.toLowerCase());
      }
      const shown = rows.filter((row) => !row.hidden).length;
      status.textContent = shown < rows.length ? `${shown} of ${rows.length}` : "";
    };
    const input = make("input", { type: "search", placeholder: "Filter rows", ariaLabel: "Filter rows", oninput: filter });
    const choices = names.flatMap((name, column) => {
      if (!name.dataset.filter) return [];
      const any = `Any ${name.dataset.filter}`, select = make("select", { className: "filter", ariaLabel: any, onchange: filter });
      const values = [...new Set(rows.map((row) => cellText(dataCells(row)[column])))].sort((a, b) => a.localeCompare(b));
      select.append(...["", ...values].map((value) => make("option", { value, textContent: value || any })));
      return [[column, select]];
    });
    tools.append(input, ...choices.map(([, select]) => select), status);
  };

  /** The cells as text, an interval in two extra columns. */
  const csv = (table) => {
    const names = dataCells(table.tHead.rows[0]), rows = rowsOf(table).map(dataCells);
    const wide = names.map((_, column) => rows.some((row) => row[column].querySelector(".interval")));
    const ends = (cell) => ascii(cell.querySelector(".interval")?.textContent ?? "[, ]").replace(/[[\]\s]/g, "").split(",");
    const quoted = (text) => {
      const safe = /^[=+@-]/.test(text) && !/^[+-][\d.]/.test(text) ? `'${text}` : text; // no formula in a spreadsheet
      return /[",\n]/.test(safe) ? `"${safe.replace(/"/g, '""')}"` : safe;
    };
    const head = names.flatMap((name, n) => (wide[n] ? ["", " low", " high"] : [""]).map((end) => cellText(name) + end));
    const body = rows.map((row) => row.flatMap((cell, n) => [ascii(cellText(cell)), ...(wide[n] ? ends(cell) : [])]));
    return [head, ...body].map((cells) => cells.map(quoted).join(",")).join("\n") + "\n";
  };

  for (const table of document.querySelectorAll(":not(.first) > .scroll > table")) {
    const tools = make("div", { className: "tools" }), caption = table.caption.textContent, n = rowsOf(table).length;
    if (n > 8) makeFilterable(table, tools);
    tools.append(button("CSV", "", () => save(caption, csv(table))));
    if (n > 1) makeSortable(table);
    if (table.tHead.querySelector("[data-filter]")) table.parentElement.before(tools);
    else table.parentElement.after(tools);
  }

  document.querySelector(".toc > details")?.toggleAttribute("open", matchMedia("(min-width: 76rem)").matches);
}
