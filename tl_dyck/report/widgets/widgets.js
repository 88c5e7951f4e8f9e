(() => {
  const { share, showTip, hideTip, cellAt, mark, unmark } = shared;
  const { strings, maps, steps } = JSON.parse(document.getElementById("data").textContent);
  const size = (map) => strings[maps[map].string].tokens.length;
  // all weights are there only of a pattern that looks ahead
  const ahead = (map) => size(map) > 1 && maps[map].weights.length === size(map) ** 2;
  const seen = (map, q) => (map >= 0 && ahead(map) ? size(map) : q + 1); // how many keys a query sees
  const weightAt = (map, q, k) => maps[map].weights[ahead(map) ? q * size(map) + k : (q * (q + 1)) / 2 + k];
  const token = (string, i) => {
    const depth = strings[string].depth;
    return `“${strings[string].tokens[i]}” at position ${i}` + (depth ? `, depth ${depth[i]}` : "");
  };
  const make = (name, classes, text) => {
    const made = document.createElement(name);
    made.className = classes;
    if (text !== undefined) made.textContent = text;
    return made;
  };

  // ---- the tip ----
  for (const box of document.querySelectorAll("[data-tip]")) {
    box.addEventListener("pointermove", (event) => showTip(box.dataset.tip, event));
    box.addEventListener("pointerleave", hideTip);
  }

  // ---- strings: which query, and where it looks ----
  const strips = [...document.querySelectorAll(".strip")];
  const figures = [...document.querySelectorAll("[data-map]")];
  const chosen = strings.map((string) => string.tokens.length - 1);
  let active = strings.map((_, index) => maps.findIndex((map) => map.string === index));
  const tell = (map, q) => {
    const { tokens, top } = strings[maps[map].string];
    let most = 0;
    for (let k = 1; k < seen(map, q); k++) if (weightAt(map, q, k) > weightAt(map, q, most)) most = k;
    const at = top[q];
    const stack = at >= 0 ? `; on the top of the stack, “${tokens[at]}” at ${at}: ${share(weightAt(map, q, at))}` : "";
    return `“${tokens[q]}” at ${q} attends most to “${tokens[most]}” at ${most}: ${share(weightAt(map, q, most))}${stack}`;
  };
  const drawStrip = (index) => {
    const q = chosen[index];
    const string = strings[index];
    const strip = strips[index];
    const map = active[index];
    let largest = 1;
    for (let k = 0; map >= 0 && k < seen(map, q); k++) largest = Math.max(largest, weightAt(map, q, k) || 0);
    strip.querySelectorAll(".cell").forEach((cell, i) => {
      cell.classList.toggle("now", i === q);
      cell.classList.toggle("late", i >= seen(map, q));
      cell.classList.toggle("top", i === string.top[q]);
      const weight = map >= 0 && i < seen(map, q) ? weightAt(map, q, i) : 0;
      cell.querySelector(".weight span").style.height = (100 * (weight || 0)) / largest + "%";
    });
    strip.querySelectorAll(".arc").forEach((arc) => {
      const i = +arc.dataset.at;
      arc.classList.toggle("now", i === q || i === string.pair[q]);
    });
    const box = strip.parentElement; // scrolls sideways where the page is narrow
    const [left, width] = [strip.querySelectorAll(".cell")[q].offsetLeft - strip.offsetLeft, strip.offsetWidth / string.tokens.length];
    if (left < box.scrollLeft) box.scrollLeft = left - width;
    else if (left + 2 * width > box.scrollLeft + box.clientWidth) box.scrollLeft = left + 2 * width - box.clientWidth;
    const slider = strip.querySelector(".query");
    slider.value = q;
    slider.setAttribute("aria-valuetext", token(index, q));
    for (const figure of figures) {
      if (+figure.dataset.string !== index) continue;
      mark(figure.querySelector(".map"), "row", q, 0, seen(+figure.dataset.map, q));
      figure.querySelector(".tells").textContent = tell(+figure.dataset.map, q);
    }
    if (steps) drawStep(q);
  };
  const choose = (index, q) => {
    chosen[index] = q;
    drawStrip(index);
  };
  strips.forEach((strip, index) => {
    strip.querySelector(".query").addEventListener("input", (event) => choose(index, +event.target.value));
    strip.addEventListener("pointermove", (event) => {
      const cell = event.target.closest(".cell");
      if (!cell) return hideTip();
      const i = +cell.dataset.at;
      if (i !== chosen[index] && (event.buttons || event.pointerType === "mouse")) choose(index, i);
      showTip(about(index, i), event);
    });
    strip.addEventListener("pointerleave", hideTip);
    strip.addEventListener("click", (event) => {
      const cell = event.target.closest(".cell");
      if (cell) choose(index, +cell.dataset.at);
    });
  });
  const about = (index, i) => {
    const { tokens, pair } = strings[index];
    const mate = pair[i] >= 0 ? `\nits partner is “${tokens[pair[i]]}” at ${pair[i]}` : "";
    return token(index, i) + mate;
  };

  // ---- maps: the same cell in all of them ----
  const leave = () => {
    hideTip();
    unmark(document, "cell-at");
  };
  const describe = (map, q, k) => {
    const { string, name } = maps[map];
    const lines = [`weight ${share(weightAt(map, q, k))} (${name})`, `query ${token(string, q)}`];
    lines.push(`key ${token(string, k)}${strings[string].top[q] === k ? ", the top of the stack" : ""}`);
    if (maps.length > 1) {
      const all = maps.map((_, each) => (k < seen(each, q) ? weightAt(each, q, k) : 0)).filter((weight) => weight !== null);
      lines.push(`all patterns: ${share(Math.min(...all))} to ${share(Math.max(...all))}`);
    }
    return lines.join("\n");
  };
  for (const figure of figures) {
    const [map, string] = [+figure.dataset.map, +figure.dataset.string];
    const svg = figure.querySelector(".map");
    const point = (event) => {
      const cell = cellAt(svg, event, size(map), ahead(map));
      if (!cell) return leave();
      const [q, k] = cell;
      if (active[string] !== map || chosen[string] !== q) (active[string] = map), choose(string, q);
      unmark(document, "cell-at");
      for (const each of figures) mark(each.querySelector(".map"), "cell-at", q, k);
      showTip(describe(map, q, k), event);
    };
    svg.addEventListener("pointermove", point);
    svg.addEventListener("pointerdown", point);
    svg.addEventListener("pointerleave", leave);
  }

  // ---- an RNN's steps ----
  const line = (name, part, amount) => {
    const row = make("div", "line");
    const meter = make("span", "meter");
    meter.appendChild(make("span", "")).style.width = 100 * part + "%";
    row.append(make("span", "name", name), meter, make("span", "amount", amount));
    return row;
  };
  const drawStep = (q) => {
    const fill = (name, ...parts) => document.getElementById("step-" + name).replaceChildren(...parts);
    const read = strings[0].tokens[q];
    fill("state", make("p", "", `after “${read}”, token ${q}:`), make("p", "verdict", steps.state[q]));
    const sums = steps.logz[q].map((value, head) => {
      const who = steps.logz[q].length > 1 ? `head ${head}: ` : "";
      const amount = Math.abs(value) < 10 ? `Z = ${Math.exp(value).toPrecision(3)}` : `log Z = ${value.toFixed(2)}`;
      return make("p", "", `${who}${amount}`);
    });
    const terms = `one term for each of ${q + 1} token${q ? "s" : ""}, for the query of this one`;
    fill("sums", make("p", "", terms), ...sums, make("p", "", tell(0, q)));
    const order = steps.logits[q].map((_, i) => i);
    if (order.length > steps.most) order.sort((a, b) => steps.logits[q][b] - steps.logits[q][a]);
    const rows = order.slice(0, steps.most).map((i) =>
      line(steps.outputs[i], steps.chances[q][i], `${(100 * steps.chances[q][i]).toFixed(1)} % (logit ${steps.logits[q][i].toFixed(2)})`)
    );
    fill("logits", ...rows);
  };
  strips.forEach((_, index) => drawStrip(index));

  document.documentElement.dataset.drawn = "yes";
})();
