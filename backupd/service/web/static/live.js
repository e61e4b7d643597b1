// How live runs get on, asked for every other second. The page says the same without this, every five.
"use strict";

(() => {
  const EVERY_MS = 2000;
  const places = [...document.querySelectorAll("[data-live]")];

  async function look(place) {
    const part = (name) => place.querySelector(`[data-part="${name}"]`);
    let told;
    try {
      const answer = await fetch(place.dataset.live, { headers: { Accept: "application/json" } });
      if (!answer.ok) return;
      told = await answer.json();
    } catch {
      return; // the daemon may be starting anew
    }
    if (told.status !== "running" || !told.alive) {
      window.location.reload();
      return;
    }
    part("words").textContent = told.words;
    part("detail").textContent = told.detail;
    if (told.share === null) {
      part("bar").removeAttribute("value");
    } else {
      part("bar").value = told.share;
    }
  }

  if (places.length > 0) {
    window.setInterval(() => {
      if (!document.hidden) places.forEach(look);
    }, EVERY_MS);
  }
})();
