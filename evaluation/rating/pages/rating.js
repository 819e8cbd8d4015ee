"use strict";
// Keys press the buttons that name them. An answer is sent, and the page shown anew when it is kept; without scripts
// the form does the same.
let sending = false;

document.addEventListener("keydown", (event) => {
  if (event.repeat || event.ctrlKey || event.altKey || event.metaKey || event.target.matches("input")) return;
  const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  const button = [...document.querySelectorAll("[data-key]")].find((each) => each.dataset.key === key);
  if (!button) return;
  event.preventDefault();
  button.click();
});

document.querySelector("form[method=post]")?.addEventListener("submit", async (event) => {
  event.preventDefault();
  if (sending) return;
  sending = true;
  const form = event.target, button = event.submitter, trouble = document.getElementById("trouble");
  const told = new URLSearchParams(new FormData(form));
  told.set("choice", button.value);
  button.classList.add("chosen");
  trouble.textContent = "";
  try {
    const answer = await fetch(form.action, { method: "POST", body: told, redirect: "manual" });
    if (answer.type === "opaqueredirect" || answer.status === 409) {
      history.scrollRestoration = "manual"; // the next pair is read from its top
      location.reload();
      return;
    }
    trouble.textContent = await answer.text();
  } catch {
    trouble.textContent = trouble.dataset.unreachable;
  }
  button.classList.remove("chosen");
  sending = false;
});
