"use strict";
// Searches the rows in the page and shows the matching ones, a screen at a time; every text is set as textContent.
{
  const SCREEN = 50;
  const { sides, rows } = JSON.parse(document.getElementById("rows").textContent);
  const make = (tag, properties, ...children) => {
    const element = Object.assign(document.createElement(tag), properties);
    element.append(...children);
    return element;
  };
  const all = rows.map(([axis, descriptor, prompt, answers]) => ({
    axis, descriptor, prompt, responses: answers.map(([response, style, b], n) => ({ side: sides[n], response, style, b })),
  }));
  for (const row of all) {
    row.text = [row.prompt, ...row.responses.map((answer) => answer.response)].join("\n").toLowerCase();
    row.name = row.descriptor.toLowerCase();
  }
  const distinct = (values) => [...new Set(values)].sort((a, b) => a.localeCompare(b));
  const choice = (label, values) => {
    const select = make("select", { ariaLabel: label, onchange: () => show() });
    select.append(make("option", { value: "", textContent: label }));
    for (const value of values) select.append(make("option", { value, textContent: value }));
    return select;
  };
  const field = (label, type) => make("input", { type, placeholder: label, ariaLabel: label, oninput: () => show() });

  const descriptor = field("Descriptor", "search"), text = field("Words in prompt or response", "search");
  const axis = choice("Any group of people", distinct(all.map((row) => row.axis)));
  const style = choice("Any style", distinct(all.flatMap((row) => row.responses.map((answer) => answer.style))));
  const minimum = make("input", { type: "number", step: "any", placeholder: "Minimum b", ariaLabel: "Minimum b", oninput: () => show() });
  const orders = ["Order of the prompts", ...sides.flatMap((side) => [`Largest b, ${side}`, `Smallest b, ${side}`])];
  const order = choice("Order", orders);
  const status = make("span", { role: "status" }), list = document.getElementById("matches");
  const more = make("button", { type: "button", textContent: "More", onclick: () => show(shown + SCREEN) });
  document.getElementById("search").append(descriptor, text, axis, style, minimum, order, status);
  list.after(make("div", { className: "tools" }, more));

  const matches = () => {
    const wanted = descriptor.value.trim().toLowerCase(), words = text.value.trim().toLowerCase(), b = parseFloat(minimum.value);
    const matching = all.filter((row) =>
      row.name.includes(wanted) && row.text.includes(words) && (!axis.value || row.axis === axis.value)
      && (!style.value || row.responses.some((answer) => answer.style === style.value))
      && (isNaN(b) || row.responses.some((answer) => answer.b !== null && answer.b >= b)));
    const index = orders.indexOf(order.value) - 1;
    if (index < 0) return matching;
    const sign = index % 2 ? 1 : -1, sortKey = (row) => row.responses[index >> 1].b ?? sign * Infinity;
    return matching.sort((one, other) => sign * (sortKey(one) - sortKey(other)) || 0);
  };

  const item = (row) => make("li", {},
    make("p", { className: "prompt" },
      make("span", { className: "small", textContent: `${row.axis} · ${row.descriptor}` }),
      make("bdi", { textContent: row.prompt })),
    make("div", { className: "pair" }, ...row.responses.map((answer, n) => make("div", {},
      make("span", {
        className: `small ${sides.length > 1 ? ["before", "after"][n] : ""}`,
        textContent: `${answer.side} · ${answer.style}${answer.b === null ? "" : ` · b ${answer.b.toFixed(4).replace("-", "−")}`}`,
      }),
      make("p", { className: "answer", dir: "auto", textContent: answer.response || "empty" })))));

  // A link may preset the search, as in #descriptor=deaf.
  const preset = new URLSearchParams(location.hash.slice(1));
  for (const [name, control] of Object.entries({ descriptor, axis, text })) control.value = preset.get(name) ?? "";

  let shown = SCREEN;
  function show(count = SCREEN) {
    const rows = matches();
    shown = count;
    list.replaceChildren(...rows.slice(0, count).map(item));
    more.hidden = rows.length <= count;
    status.textContent = `${rows.length.toLocaleString("en")} of ${all.length.toLocaleString("en")}`;
  }
  show();
}
