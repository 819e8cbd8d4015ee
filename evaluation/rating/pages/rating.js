"use strict";
// A key presses the button with that data-key. The page sends an answer and reloads when the server has saved it;
// without JavaScript the form does the same.
let sending = false;

document.addEventListener("keydown", (event) => {
  if (event.repeat || event.ctrlKey || event.altKey || event.metaKey || event.target.matches("input")) return;
  const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  const button = [...document.querySelectorAll("[data-key]")].find((candidate) => candidate.dataset.key === key);
  if (!button) return;
  event.preventDefault();
  button.click();
});

document.querySelector("form[method=post]")?.addEventListener("submit", async (event) => {
  event.preventDefault();
  if (sending) return;
  sending = true;
  const form = event.target, button = event.submitter, error = document.getElementById("error");
  const fields = new URLSearchParams(new FormData(form));
  fields.set("choice", button.value);
  button.classList.add("chosen");
  error.textContent = "";
  try {
    const answer = await fetch(form.action, { method: "POST", body: fields, redirect: "manual" });
    if (answer.type === "opaqueredirect" || answer.status === 409) {
      history.scrollRestoration = "manual"; // the next pair starts at the top
      location.reload();
      return;
    }
    error.textContent = await answer.text();
  } catch {
    error.textContent = error.dataset.unreachable;
  }
  button.classList.remove("chosen");
  sending = false;
});
