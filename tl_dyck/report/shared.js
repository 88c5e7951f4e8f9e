"use strict";
// What pages and widgets share: numbers, the tip, the cell that is pointed at, marks on a map.
const shared = (() => {
  const tip = document.getElementById("tip");
  const share = (weight) => (weight / 1000).toFixed(3);
  const showTip = (text, event) => {
    tip.textContent = text;
    tip.hidden = false;
    const [width, height] = [tip.offsetWidth, tip.offsetHeight];
    const below = event.clientY + 20 + height <= innerHeight;
    tip.style.left = Math.max(4, Math.min(event.clientX + 16, innerWidth - width - 8)) + "px";
    tip.style.top = Math.max(4, below ? event.clientY + 20 : event.clientY - height - 14) + "px";
  };
  const hideTip = () => (tip.hidden = true);
  // query and key of the cell of an n × n map, null outside, and above the diagonal where no query looks ahead
  const cellAt = (svg, event, n, ahead = false) => {
    const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
    const [q, k] = [Math.floor(at.y), Math.floor(at.x)];
    return q >= 0 && q < n && k >= 0 && k < (ahead ? n : q + 1) ? [q, k] : null;
  };
  const mark = (svg, name, q, k, width = 1) => {
    let box = svg.querySelector("." + name);
    if (!box) {
      box = svg.appendChild(document.createElementNS("http://www.w3.org/2000/svg", "rect"));
      box.setAttribute("class", name);
      box.setAttribute("height", 1);
    }
    box.setAttribute("y", q);
    box.setAttribute("x", k);
    box.setAttribute("width", width);
  };
  // a box that scrolls sideways says below itself where there is more
  const sayMore = () => {
    for (const box of document.querySelectorAll(".scroll")) {
      const beyond = box.scrollWidth - box.clientWidth;
      const words = [box.scrollLeft > 2 ? "← more" : "", box.scrollLeft < beyond - 2 ? "more →" : ""];
      if (beyond > 2) box.dataset.more = words.filter(Boolean).join(" · ");
      else delete box.dataset.more;
    }
  };
  for (const name of ["scroll", "resize", "toggle", "load"]) addEventListener(name, sayMore, true);
  new ResizeObserver(sayMore).observe(document.body);
  const unmark = (within, name) => within.querySelectorAll("." + name).forEach((box) => box.remove());
  return { share, showTip, hideTip, cellAt, mark, unmark };
})();
