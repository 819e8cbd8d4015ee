"use strict";
// Sorts and filters tables, saves tables and figures, and copies citations. The page is complete without it.
{
  const make = (tag, properties, ...children) => {
    const element = Object.assign(document.createElement(tag), properties);
    element.append(...children);
    return element;
  };
  const button = (text, onclick) => make("button", { type: "button", textContent: text, onclick });
  const plain = (text) => text.replace(/\s+/g, " ").trim();
  const cellText = (cell) => plain((cell.querySelector(".value") ?? cell).textContent);
  const ascii = (text) => text.replace(/−/g, "-").replace(/(\d),(?=\d{3})/g, "$1");
  const number = (text) => parseFloat(ascii(text).replace(/^[<>+\s]+/, ""));

  const save = (name, content, type) => {
    const link = make("a", { href: URL.createObjectURL(new Blob([content], { type })), download: name });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
  };
  const fileName = (title, suffix) =>
    `${plain(title).toLowerCase().replace(/[^\p{L}\p{Nd}]+/gu, "-").replace(/^-|-$/g, "").slice(0, 60)}.${suffix}`;

  // --- tables

  /** The cells of a row without the plotted column, and the columns and rows of a table. */
  const dataCells = (row) => [...row.cells].filter((cell) => !cell.classList.contains("plot"));
  const grid = (table) => ({ names: dataCells(table.tHead.rows[0]), rows: [...table.tBodies[0].rows].map(dataCells) });

  const sort = (table, column, descending) => {
    const rows = [...table.tBodies[0].rows];
    const key = new Map(rows.map((row, n) => [row, cellText(grid(table).rows[n][column])]));
    const numeric = rows.filter((row) => !isNaN(number(key.get(row)))).length * 2 > rows.length;
    const sortKey = (row) => (numeric ? number(key.get(row)) : key.get(row));
    const isMissing = (row) => (numeric ? isNaN(sortKey(row)) : !sortKey(row));
    const order = (a, b) => (numeric ? sortKey(a) - sortKey(b) : sortKey(a).localeCompare(sortKey(b)));
    rows.sort((a, b) => isMissing(a) - isMissing(b) || (descending ? -1 : 1) * order(a, b));
    table.tBodies[0].append(...rows);
    grid(table).names.forEach((name, n) => {
      if (n === column) name.setAttribute("aria-sort", descending ? "descending" : "ascending");
      else name.removeAttribute("aria-sort");
    });
  };

  const makeSortable = (table, tools) => {
    const { names } = grid(table);
    const sortBy = (column) => sort(table, column, names[column].getAttribute("aria-sort") !== "descending");
    names.forEach((name, column) => {
      const label = name.textContent;
      name.replaceChildren(make("button", { type: "button", className: "sort", textContent: label, onclick: () => sortBy(column) }));
    });
    const choice = make("select", { className: "sort-by", ariaLabel: "Sort by", onchange: () => choice.value && sortBy(+choice.value) });
    choice.append(make("option", { value: "", textContent: "Sort by …" }));
    names.forEach((name, column) => choice.append(make("option", { value: column, textContent: name.textContent })));
    tools.append(choice);
  };

  const makeFilterable = (table, tools) => {
    const { names, rows } = grid(table), status = make("span", { role: "status" });
    const filter = () => {
      const wanted = input.value.toLowerCase();
      rows.forEach((cells) => {
        const row = cells[0].parentElement;
        const fits = choices.every(([column, select]) => !select.value || cellText(cells[column]) === select.value);
        row.hidden = !fits || !row.textContent.toLowerCase().includes(wanted);
      });
      const shown = rows.filter((cells) => !cells[0].parentElement.hidden).length;
      status.textContent = shown < rows.length ? `${shown} of ${rows.length}` : "";
    };
    const input = make("input", { type: "search", placeholder: "Filter rows", ariaLabel: "Filter rows", oninput: filter });
    const choices = names.flatMap((name, column) => {
      if (!name.dataset.filter) return [];
      const values = [...new Set(rows.map((cells) => cellText(cells[column])))].sort((a, b) => a.localeCompare(b));
      const select = make("select", { className: "filter", ariaLabel: `Any ${name.dataset.filter}`, onchange: filter });
      select.append(...["", ...values].map((value) => make("option", { value, textContent: value || `Any ${name.dataset.filter}` })));
      return values.length > 1 ? [[column, select]] : [];
    });
    tools.append(input, ...choices.map(([, select]) => select), status);
  };

  /** The cells as text, an interval in two extra columns. */
  const csv = (table) => {
    const { names, rows } = grid(table);
    const wide = names.map((_, column) => rows.some((row) => row[column].querySelector(".interval")));
    const ends = (cell) => ascii(cell.querySelector(".interval")?.textContent ?? "[, ]").replace(/[[\]\s]/g, "").split(",");
    const quoted = (text) => {
      const safe = /^[=+@-]/.test(text) && !/^[+-][\d.]/.test(text) ? `'${text}` : text; // no formula in a spreadsheet
      return /[",\n]/.test(safe) ? `"${safe.replace(/"/g, '""')}"` : safe;
    };
    const line = (cells) => cells.map(quoted).join(",");
    const head = names.flatMap((name, n) => (wide[n] ? ["", " low", " high"].map((end) => cellText(name) + end) : [cellText(name)]));
    const body = rows.map((row) => row.flatMap((cell, n) => [ascii(cellText(cell)), ...(wide[n] ? ends(cell) : [])]));
    return [head, ...body].map(line).join("\n") + "\n";
  };

  const latex = (table) => {
    const { names, rows } = grid(table);
    const special = { "\\": "\\textbackslash{}", "~": "\\textasciitilde{}", "^": "\\textasciicircum{}" };
    const math = { "−": "$-$", "×": "$\\times$", "±": "$\\pm$", "<": "$<$", ">": "$>$", "⁻": "$^-$", "³": "$^3$", "○": "", "●": "" };
    const escaped = (text) => text.replace(/[\\~^&%$#_{}]/g, (it) => special[it] ?? `\\${it}`).replace(/[−×±<>⁻³○●]/g, (it) => math[it]);
    const full = (cell) => escaped([cellText(cell), plain(cell.querySelector(".interval")?.textContent ?? "")].join(" ").trim());
    const line = (cells) => `${cells.map(full).join(" & ")} \\\\`;
    const columns = "l" + "r".repeat(names.length - 1);
    return [
      "% \\usepackage{booktabs}", `% ${plain(table.caption.textContent)}`, `\\begin{tabular}{${columns}}`, "\\toprule",
      line(names), "\\midrule", ...rows.map(line), "\\bottomrule", "\\end{tabular}", "",
    ].join("\n");
  };

  // --- images

  const SVG = "http://www.w3.org/2000/svg";
  const set = (element, attributes) => {
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    return element;
  };
  const draw = (tag, attributes, ...children) => {
    const element = set(document.createElementNS(SVG, tag), attributes);
    element.append(...children);
    return element;
  };

  const STYLE_PROPERTIES = [
    "fill", "fill-opacity", "stroke", "stroke-width", "stroke-dasharray", "stroke-linejoin", "stroke-linecap", "stroke-opacity", "opacity", "image-rendering",
    "font-family", "font-size", "font-weight", "text-anchor", "dominant-baseline", "paint-order", "vector-effect", "overflow",
  ];

  /** The chart with its computed styles inlined, on the page's background colour. */
  const standalone = (svg) => {
    const { width, height } = svg.getBoundingClientRect(), copy = svg.cloneNode(true);
    const originals = [svg, ...svg.querySelectorAll("*")];
    [copy, ...copy.querySelectorAll("*")].forEach((element, i) => {
      const computed = getComputedStyle(originals[i]), sizes = element.tagName === "rect" ? ["width", "height"] : [];
      element.setAttribute("style", [...STYLE_PROPERTIES, ...sizes].map((name) => `${name}:${computed.getPropertyValue(name)}`).join(";"));
      element.removeAttribute("class");
    });
    const margin = 12, paper = getComputedStyle(document.body).backgroundColor;
    const sizes = { xmlns: SVG, width: width + 2 * margin, height: height + 2 * margin };
    const inner = { x: margin, y: margin, width, height };
    const outer = set(copy.cloneNode(false), sizes);
    set(copy, inner);
    outer.append(draw("rect", { width: "100%", height: "100%", fill: paper }), copy);
    return new XMLSerializer().serializeToString(outer);
  };

  const savePng = async (source, name) => {
    const image = new Image(), sharp = 2;
    image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(source)}`;
    await image.decode();
    const canvas = make("canvas", { width: image.width * sharp, height: image.height * sharp });
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    canvas.toBlob((blob) => save(name, blob, "image/png"), "image/png");
  };

  /** A table of dots and intervals as SVG, with a layout that does not depend on the screen. */
  const picture = (table) => {
    const PLOT = 340, GAP = 20, HEAD = 60, ROW = 44, MAX_LABEL = 60; // pixels; characters of a label
    const { names } = grid(table), rows = [...table.tBodies[0].rows].filter((row) => !row.hidden);
    const svg = draw("svg", { style: "position: absolute; visibility: hidden" });
    document.body.append(svg); // so that text lengths and styles can be computed
    const write = (y, kind, ...parts) => svg.appendChild(draw("text", { y, class: kind }, ...parts));
    const cut = (text) => (text.length > MAX_LABEL ? `${text.slice(0, MAX_LABEL)}…` : text);
    const middle = (n) => HEAD + ROW * (n + 0.5);
    const caption = write(16, "cell strong", plain(table.caption.textContent));
    const columns = names.map((name, column) => {
      const end = column ? "end" : "", side = ["before", "after"].find((it) => name.classList.contains(it));
      const mark = side ? [draw("tspan", { class: side }, side === "before" ? "○ " : "● ")] : [];
      const texts = rows.flatMap((row, n) => {
        const cell = dataCells(row)[column], interval = cell.querySelector(".interval");
        const value = write(middle(n) + (interval ? -2 : 5), `cell ${end}`, cut(cellText(cell)));
        return interval ? [value, write(middle(n) + 14, end, plain(interval.textContent))] : [value];
      });
      return [write(HEAD - 10, end, ...mark, cellText(name)), ...texts];
    });
    const length = (texts) => Math.max(...texts.map((text) => text.getComputedTextLength()));
    const left = length(columns[0]) + GAP;
    let width = left + PLOT;
    for (const texts of columns.slice(1)) {
      width += GAP + length(texts);
      texts.forEach((text) => set(text, { x: width }));
    }
    const put = (plot, y, height) => {
      const drawing = plot.querySelector("svg");
      const sizes = { x: left, y, width: PLOT, height, class: "at", style: `width: ${PLOT}px; height: ${height}px` };
      if (drawing) svg.append(set(drawing.cloneNode(true), sizes));
      else set(write(y + height / 2 + 5, "middle", cut(plain(plot.textContent))), { x: left + PLOT / 2 });
    };
    put(table.tHead.querySelector("td.plot"), HEAD - 26, 24);
    rows.forEach((row, n) => {
      const y = HEAD + ROW * n;
      svg.append(draw("line", { x1: 0, x2: width, y1: y, y2: y, class: n ? "" : "zero" }));
      put(row.querySelector("td.plot"), y, ROW);
    });
    width = Math.max(width, caption.getComputedTextLength());
    svg.style.width = `${width}px`;
    svg.style.height = `${HEAD + ROW * rows.length}px`;
    const text = standalone(svg);
    svg.remove();
    return text;
  };

  const pictures = (title, source) => [
    button("SVG", () => save(fileName(title, "svg"), source(), "image/svg+xml")),
    button("PNG", () => savePng(source(), fileName(title, "png"))),
  ];

  // --- buttons of each table and figure

  for (const table of document.querySelectorAll(".scroll > table")) {
    const tools = make("div", { className: "tools" });
    const caption = table.caption.textContent, count = table.tBodies[0].rows.length;
    if (count > 8) makeFilterable(table, tools);
    if (count > 1) makeSortable(table, tools);
    tools.append(
      button("CSV", () => save(fileName(caption, "csv"), csv(table), "text/csv")),
      button("LaTeX", () => save(fileName(caption, "tex"), latex(table), "text/plain")),
    );
    if (table.classList.contains("plotted")) tools.append(...pictures(caption, () => picture(table)));
    if (table.tHead.querySelector("[data-filter]")) table.parentElement.before(tools);
    else table.parentElement.after(tools);
  }

  for (const figure of document.querySelectorAll("figure")) {
    const svg = figure.querySelector(".drawing svg");
    const title = figure.querySelector("figcaption")?.textContent || svg?.getAttribute("aria-label") || "figure";
    if (svg) figure.append(make("div", { className: "tools" }, ...pictures(title, () => standalone(svg))));
  }

  // --- citation, contents, scrolling

  for (const text of document.querySelectorAll("pre.paste")) {
    const copy = button("Copy", async () => {
      getSelection().selectAllChildren(text); // stays selected if copying is not allowed
      await navigator.clipboard?.writeText(text.textContent).then(() => (copy.textContent = "Copied"), () => {});
    });
    text.after(make("div", { className: "tools" }, copy));
  }

  // A link to what is folded unfolds it.
  const reveal = () => {
    const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    for (let it = target?.closest("details"); it; it = it.parentElement.closest("details")) it.open = true;
    target?.scrollIntoView();
  };
  addEventListener("hashchange", reveal);
  if (location.hash) reveal();

  const contents = document.querySelector(".toc > details"), wide = matchMedia("(min-width: 76rem)");
  const unfold = () => contents && (contents.open = wide.matches);
  wide.addEventListener("change", unfold);
  unfold();

  // A region that does not scroll cannot be focused.
  const stops = new ResizeObserver((seen) => {
    for (const { target } of seen) {
      if (target.scrollWidth > target.clientWidth + 1) target.tabIndex = 0;
      else target.removeAttribute("tabindex");
    }
  });
  document.querySelectorAll("[role=group][tabindex]").forEach((region) => stops.observe(region));
}
