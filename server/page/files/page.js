// Keeps the page as the server has it: the server sends its content anew, as the page had it at first.
(() => {
  "use strict";
  const live = document.getElementById("live");
  const away = document.getElementById("away");
  const stream = new EventSource("/live");
  stream.addEventListener("page", (message) => {
    away.hidden = true;
    const events = live.querySelector(".events");
    const scrolled = events ? events.scrollTop : 0;
    // The server has escaped all that others have named.
    live.innerHTML = message.data;
    const now = live.querySelector(".events");
    if (now) now.scrollTop = scrolled;
    // The tab says how far the job is while another one is looked at.
    const step = live.querySelector("dd");
    document.title = live.querySelector("h1").textContent + (step ? ", step " + step.textContent : "");
    if (live.querySelector("h1 .state.done")) stream.close();
  });
  stream.onerror = () => { away.hidden = false; };
})();
