(() => {
  const { share, showTip, hideTip, cellAt, mark, unmark } = shared;
  const read = (id) => JSON.parse(document.getElementById(id).textContent);
  const root = document.documentElement;
  if (innerWidth < 640) document.getElementById("contents").open = false;

  // ---- plotly figures: colours are names of CSS variables, so a change of theme is a redraw ----
  const plots = read("data-plots");
  const paint = (value, key, style) => {
    if (Array.isArray(value)) return value.map((part) => paint(part, key, style));
    if (value && typeof value === "object")
      return Object.fromEntries(Object.entries(value).map(([name, part]) => [name, paint(part, name, style)]));
    const named = /color$/i.test(key) && typeof value === "string" && value.startsWith("@");
    return named ? style.getPropertyValue("--" + value.slice(1)).trim() : value;
  };
  const paper = 660; // pixels between the margins of a printed page
  const axis = { gridcolor: "@grid", linecolor: "@rule", zerolinecolor: "@rule", automargin: true };
  const scale = (own) => ({ ...axis, ...own, title: { font: { size: 13 }, ...own.title } });
  // a title in lines of so many pixels; what is in brackets has a line of its own if that is enough
  const inLines = (text, pixels) => {
    const fits = (line) => 7 * line.length <= Math.max(84, pixels);
    const filled = (lines, word) => (fits(`${lines.at(-1)} ${word}`) ? [...lines.slice(0, -1), `${lines.at(-1)} ${word}`] : [...lines, word]);
    const [parts, [first, ...words]] = [text.split(/ (?=\()/), text.split(" ")];
    return fits(text) ? text : (parts.every(fits) ? parts : words.reduce(filled, [first])).join("<br>");
  };
  const label = 24; // letters in a line of a row's name on a narrow page
  const broken = (text) =>
    text.split(", ").reduce((lines, part) => {
      const longer = lines.length ? `${lines.at(-1)}, ${part}` : part;
      return lines.length && longer.length > label ? [...lines.slice(0, -1), `${lines.at(-1)},`, part] : [...lines.slice(0, -1), longer];
    }, []);
  // rows as high as their names, if these have several lines; the legend stays where it is
  const grown = (layout, narrow) => {
    const texts = layout.yaxis.ticktext;
    if (!narrow || !texts) return layout;
    const short = (text) => (roomy(layout) ? text.replace(", ", ",\n").split("\n") : [text]);
    const named = texts.map(texts.some((text) => text.length > label) ? broken : short);
    const inner = layout.height - layout.margin.t - layout.margin.b;
    const more = Math.max(0, texts.length * (17 * Math.max(...named.map((lines) => lines.length)) + 4) - inner);
    return {
      ...layout,
      height: layout.height + more,
      legend: layout.legend && { ...layout.legend, y: 1 + ((layout.legend.y - 1) * inner) / (inner + more) },
      yaxis: { ...layout.yaxis, ticktext: named.map((lines) => lines.join("<br>")) },
    };
  };
  const wrap = (title, pixels) => (title ? { ...title, text: inLines(title.text, pixels) } : title);
  // what the names of rows leave of a width
  const beside = ({ margin, yaxis }, width) => {
    const names = (yaxis.ticktext ?? []).flatMap((text) => text.split("<br>"));
    return width - Math.max(margin?.l ?? 16, 7 * Math.max(0, ...names.map((name) => name.length))) - 16;
  };
  // of a row's label only if there is room for two lines
  const roomy = ({ height, margin, yaxis }) => (height - margin.t - margin.b) / (yaxis.ticktext?.length ?? 1) >= 36;
  // the names of vertical lines, one above the other where there is no room beside each other
  const stagger = (layout, narrow) => {
    const names = layout.annotations ?? [];
    if (!narrow || names.length < 2 || names.some((name) => name.yref !== "paper")) return layout;
    const { t, b } = layout.margin;
    const more = 15 * (names.length - 1);
    return {
      ...layout,
      height: layout.height + more,
      margin: { ...layout.margin, t: t + more },
      legend: { ...layout.legend, y: layout.legend.y + more / (layout.height - t - b) },
      annotations: names.map((name, index) => ({ ...name, yshift: 15 * index })),
    };
  };
  const draw = (box) => {
    const printing = root.classList.contains("printing");
    const width = printing ? Math.min(box.clientWidth, paper / (box.parentElement.className === "plots" ? 2 : 1)) : undefined;
    const narrow = (width || box.clientWidth) < 500;
    const { data, layout: asked } = plots[box.dataset.plot];
    const layout = stagger(grown(asked, narrow), narrow);
    box.style.height = `${layout.height}px`;
    const style = getComputedStyle(root);
    const { yaxis } = layout;
    const across = beside(layout, width || box.clientWidth);
    const down = layout.height - (layout.margin?.t ?? 24) - (layout.margin?.b ?? 56);
    const touched = matchMedia("(pointer: coarse)").matches;
    const full = {
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      hovermode: "closest",
      margin: { t: 24, r: 16, b: 56, l: 16 },
      dragmode: touched ? false : "zoom", // a finger scrolls the page
      hoverlabel: { bgcolor: "@ink", bordercolor: "@ink", font: { color: "@page" }, align: "left" },
      ...layout,
      width,
      font: { family: getComputedStyle(document.body).fontFamily, size: 13, color: "@ink" },
      xaxis: scale({ ...layout.xaxis, title: wrap(layout.xaxis.title, across) }),
      yaxis: scale({ ...yaxis, title: wrap(yaxis.title, down) }),
    };
    const config = {
      responsive: true,
      displaylogo: false,
      displayModeBar: touched ? false : "hover", // where nothing hovers, plotly leaves it over the legend
      modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"],
      toImageButtonOptions: { format: "svg", filename: box.dataset.plot },
    };
    return Plotly.react(box, paint(data, "", style), paint(full, "", style), config);
  };
  const boxes = [...document.querySelectorAll(".plot")];
  const drawAll = () => Promise.all(boxes.map(draw));
  // one after the other, so that the page answers meanwhile
  const drawNext = (rest) =>
    rest.length ? draw(rest[0]).then(() => setTimeout(drawNext, 0, rest.slice(1))) : (root.dataset.drawn = "yes");
  drawNext(boxes);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
  addEventListener("beforeprint", () => (root.classList.add("printing"), drawAll()));
  addEventListener("afterprint", () => {
    root.classList.remove("printing");
    drawAll().then(() => boxes.forEach((box) => Plotly.Plots.resize(box)));
  });

  // ---- tables that readers sort by a column, and filter ----
  for (const sorted of document.querySelectorAll("table.sortable")) {
    const [body, heads] = [sorted.tBodies[0], [...sorted.tHead.rows[0].cells]];
    const text = (row, column) => row.cells[column].textContent;
    const number = (words) => (words.trim() === "" ? NaN : Number(words.replace(/,/g, "")));
    const compare = (column) => (one, other) => {
      const [a, b] = [text(one, column), text(other, column)];
      const [x, y] = [number(a), number(b)];
      if (Number.isNaN(x) || Number.isNaN(y)) return Number.isNaN(x) - Number.isNaN(y) || a.localeCompare(b);
      return x - y;
    };
    heads.forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const up = head.ariaSort !== "ascending";
        heads.forEach((other) => other.removeAttribute("aria-sort"));
        head.ariaSort = up ? "ascending" : "descending";
        const rows = [...body.rows].sort(compare(column));
        body.append(...(up ? rows : rows.reverse()));
      });
    });
    const [label, field, count] = ["label", "input", "span"].map((name) => document.createElement(name));
    field.type = "search";
    label.className = "filter";
    const words = () => field.value.toLowerCase().split(/\s+/).filter(Boolean);
    const filter = () => {
      const wanted = words();
      for (const row of body.rows) {
        const cells = [...row.cells].map((cell) => cell.textContent.toLowerCase());
        row.hidden = !wanted.every((word) => cells.some((cell) => cell.includes(word)));
      }
      count.textContent = ` ${[...body.rows].filter((row) => !row.hidden).length} of ${body.rows.length} rows`;
    };
    field.addEventListener("input", filter);
    label.append("Show rows with ", field, count);
    sorted.parentElement.before(label);
    filter();
  }

  // ---- attention patterns ----
  const { tokens, depth, top, groups } = read("data-patterns");
  const weightAt = (group, map, q, k) => groups[group].weights[map][(q * (q + 1)) / 2 + k];
  const token = (i) => `“${tokens[i]}” at position ${i}, depth ${depth[i]}`;

  const describe = (group, map, q, k) => {
    const others = groups[group].weights.map((_, other) => weightAt(group, other, q, k)).filter((w) => w !== null);
    const range = `all seeds: ${share(Math.min(...others))} to ${share(Math.max(...others))}`;
    const lines = [
      `weight ${share(weightAt(group, map, q, k))} (seed ${groups[group].seeds[map]})`,
      `query ${token(q)}`,
      `key ${token(k)}${top[q] === k ? ", the top of the stack" : ""}`,
      others.length > 1 ? range : "",
    ];
    return lines.join("\n").trim();
  };
  for (const box of document.querySelectorAll(".group")) {
    const maps = [...box.querySelectorAll(".open")];
    const leave = () => {
      hideTip();
      unmark(box, "cursor");
    };
    box.addEventListener("pointermove", (event) => {
      const button = event.target.closest(".open");
      const cell = button && cellAt(button.firstElementChild, event, tokens.length);
      if (!cell) return leave();
      showTip(describe(+button.dataset.group, +button.dataset.map, ...cell), event);
      maps.forEach((map) => mark(map.firstElementChild, "cursor", ...cell)); // the same cell in all seeds
    });
    box.addEventListener("pointerleave", leave);
    box.addEventListener("click", (event) => {
      const button = event.target.closest(".open");
      if (button) leave(), open(button);
    });
  }

  const viewer = document.getElementById("viewer");
  const stage = document.getElementById("viewer-map");
  const said = document.getElementById("viewer-cell");
  let shown = null; // the button whose map is shown
  let cell = [tokens.length - 1, tokens.length - 1];
  const tell = () => {
    mark(stage.firstElementChild, "cursor", ...cell);
    said.textContent = describe(+shown.dataset.group, +shown.dataset.map, ...cell);
  };
  const show = (button) => {
    shown = button;
    const group = groups[button.dataset.group];
    document.getElementById("viewer-title").textContent = `${group.name}, seed ${group.seeds[button.dataset.map]}`;
    stage.replaceChildren(button.firstElementChild.cloneNode(true));
    tell();
  };
  const open = (button) => {
    show(button);
    viewer.showModal();
    stage.focus();
  };
  const step = (by) => {
    const maps = [...shown.parentElement.querySelectorAll(".open")];
    show(maps[(maps.indexOf(shown) + by + maps.length) % maps.length]);
  };
  document.getElementById("viewer-previous").addEventListener("click", () => step(-1));
  document.getElementById("viewer-next").addEventListener("click", () => step(1));
  document.getElementById("viewer-close").addEventListener("click", () => viewer.close());
  viewer.addEventListener("close", () => shown.focus());
  viewer.addEventListener("click", (event) => event.target === viewer && viewer.close()); // the backdrop
  stage.addEventListener("pointermove", (event) => {
    const found = cellAt(stage.firstElementChild, event, tokens.length);
    if (found) (cell = found), tell();
  });
  stage.addEventListener("keydown", (event) => {
    const move = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (!move) return;
    event.preventDefault();
    const q = Math.min(Math.max(cell[0] + move[0], 0), tokens.length - 1);
    cell = [q, Math.min(Math.max(cell[1] + move[1], 0), q)];
    tell();
  });
})();
