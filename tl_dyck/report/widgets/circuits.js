"use strict";
(() => {
  const { view, props } = JSON.parse(document.getElementById("data").textContent);
  CircuitsVis.render("view", CircuitsVis[view], props);
  document.documentElement.dataset.drawn = "yes";
})();
