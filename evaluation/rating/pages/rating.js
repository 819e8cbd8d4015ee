"use strict";
// The page sends each answer, and shows the next question when the server has saved it. Texts are only set as text.
const element = (id) => document.getElementById(id);
const keys = { ArrowLeft: "left", ArrowRight: "right", s: "skip", u: "undo" };
let shown = {}, sending = false;

async function send(rater, choice) {
  if (sending) return;
  sending = true;
  element("error").textContent = "";
  try {
    const body = JSON.stringify({ rater, choice, prompt_id: shown.prompt_id, question: shown.question });
    const answer = await fetch("answer", { method: "POST", body });
    if (answer.ok) show(await answer.json());
    else element("error").textContent = await answer.text();
  } catch {
    element("error").textContent = "The server does not answer. This answer is not saved; your earlier answers are. Please answer again when the server is back.";
  }
  sending = false;
}

function show(next) {
  shown = next;
  for (const id of ["text", "prompt", "left", "right"]) element(id).textContent = next[id] || "(empty)";
  element("progress").textContent = `${next.rater} · ${next.done} of ${next.total} answers`;
  element("welcome").hidden = true;
  element("pair").hidden = next.done === next.total;
  element("thanks").hidden = next.done < next.total;
  element("undo").hidden = next.done === 0;
  window.scrollTo(0, 0);
}

element("welcome").addEventListener("submit", (event) => {
  event.preventDefault();
  send(element("rater").value, null);
});
for (const choice of Object.values(keys)) element(choice).addEventListener("click", () => send(shown.rater, choice));
document.addEventListener("keydown", (event) => {
  if (event.repeat || event.ctrlKey || event.altKey || event.metaKey || event.target.matches("input")) return;
  const button = element(keys[event.key.length === 1 ? event.key.toLowerCase() : event.key]);
  if (!button || !button.checkVisibility()) return;
  event.preventDefault();
  button.click();
});
