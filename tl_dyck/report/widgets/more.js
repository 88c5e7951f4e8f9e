"use strict";
// In a notebook's frame: say that there is more below.
if (window !== window.top) {
  const more = document.createElement("div");
  more.className = "more";
  more.textContent = "more below ↓";
  document.body.append(more);
  const show = () => (more.hidden = scrollY + innerHeight > document.documentElement.scrollHeight - 12);
  for (const name of ["scroll", "resize", "toggle", "load"]) addEventListener(name, show, true);
  new ResizeObserver(show).observe(document.body); // what is drawn, or unfolded, later
  show();
}
