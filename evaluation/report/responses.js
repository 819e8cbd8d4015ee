"use strict";
// Filters the answers in the page by person, group, labels and words. Without it, all answers are there.
{
  const make = (tag, properties, ...children) => {
    const element = Object.assign(document.createElement(tag), properties);
    element.append(...children);
    return element;
  };
  const people = [...document.querySelectorAll("details.person")].map((element) => ({
    element, name: element.dataset.name, group: element.dataset.group, isOpen: element.open,
    answers: [...element.querySelectorAll("li")].map((item) => ({
      item,
      words: [...item.querySelectorAll(".prompt, .answer")].map((text) => text.textContent).join("\n").toLowerCase(),
      labels: [...item.querySelectorAll("span[title]")].map((span) => [span.title, span.textContent]),
    })),
  }));
  const answers = people.flatMap((person) => person.answers);
  const distinct = (values) => [...new Set(values)].sort((a, b) => a.localeCompare(b));
  const choice = (label, values) => {
    const select = make("select", { ariaLabel: label, onchange: () => show() });
    select.append(make("option", { value: "", textContent: label }));
    for (const value of values) select.append(make("option", { value, textContent: value }));
    return select;
  };

  const descriptor = choice("Everybody", distinct(people.map((person) => person.name)));
  const axis = choice("Any group of people", distinct(people.map((person) => person.group)));
  const kinds = distinct(answers.flatMap((answer) => answer.labels.map(([kind]) => kind)));
  const labels = kinds.map((kind) => choice(
    `Any ${kind}`,
    distinct(answers.flatMap((answer) => answer.labels.filter(([of]) => of === kind).map(([, label]) => label))),
  ));
  const text = make("input", { type: "search", placeholder: "Words", ariaLabel: "Words in prompt or answer", oninput: () => show() });
  const status = make("span", { role: "status" });
  document.getElementById("search").append(
    descriptor, ...(axis.length > 2 ? [axis] : []), ...labels, text, status,
  );

  // A link may preset the filter, as in #descriptor=deaf.
  const preset = new URLSearchParams(location.hash.slice(1).replaceAll("+", "%2B"));
  for (const [name, control] of Object.entries({ descriptor, axis, text })) control.value = preset.get(name) ?? "";
  const asked = preset.get("descriptor");
  const missing = asked !== null && descriptor.value !== asked ? `No answers to “${asked}” are on this page` : "";
  if (missing) descriptor.value = "";

  function show() {
    const words = text.value.trim().toLowerCase();
    const wanted = labels.map((select, n) => [kinds[n], select.value]).filter(([, value]) => value);
    const isFiltered = Boolean(descriptor.value || axis.value || words || wanted.length);
    let n = 0;
    for (const person of people) {
      const isMeant = (!descriptor.value || person.name === descriptor.value) && (!axis.value || person.group === axis.value);
      let some = false;
      for (const answer of person.answers) {
        const matches = isMeant && answer.words.includes(words) && wanted.every(([kind, value]) =>
          answer.labels.some(([of, label]) => of === kind && label === value));
        answer.item.hidden = !matches;
        some ||= matches;
        n += matches;
      }
      person.element.hidden = !some;
      person.element.open = isFiltered ? some : person.isOpen;
    }
    const count = `${n.toLocaleString("en")} of ${answers.length.toLocaleString("en")} answers`;
    status.textContent = missing && !isFiltered ? `${missing}; ${count}` : count;
  }
  show();
}
