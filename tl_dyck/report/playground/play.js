// The page: what is typed, which position is looked at, and all that follows from them.
(() => {
  const { make, percent, exactly } = view;
  const { showTip, hideTip, cellAt, mark, unmark } = shared;
  const data = JSON.parse(document.getElementById("data").textContent);
  const language = grammar(data.language, data.law);
  const models = data.models.map((packed) => ({ name: packed.name, family: packed.family, run: network(packed), config: packed.config }));
  const get = (id) => document.getElementById(id);
  const [field, slider, status, strip, show] = ["text", "slider", "status", "strip", "show"].map(get);
  let [tokens, at, string, results, job] = [[], 0, null, [], 0];
  let [clicked, step] = [null, 0]; // the weight whose numbers are shown; the step of the tour, 0 for none
  const name = (token) => view.nameOf(language, token);
  const where = (i) => `“${name(string.ids[i])}” at position ${i}, depth ${string.depth[i]}`;
  const top = (i) => string.stacks[i].at(-1) ?? -1;

  // ---- cards: made once, filled again and again ----
  const cards = models.map((model, index) => {
    const [verdict, chances, rnn] = [make("p", { class: "verdict" }), make("div", { class: "chances" }), make("p", { class: "rnn note" })];
    const maps = [];
    const figures = make("div", { class: "maps" });
    for (let layer = 0; layer < model.config.n_layers; layer++) {
      for (let head = 0; head < model.config.n_heads; head++) {
        const svg = make("svg", { class: "map", "aria-hidden": "true" });
        const title = `layer ${layer}` + (model.config.n_heads > 1 ? `, head ${head}` : "");
        const box = make("div", { class: "mapbox", tabindex: 0, role: "application" }, svg);
        const told = make("figcaption", { class: "tells" });
        figures.append(make("figure", {}, make("h4", {}, title), box, told));
        maps.push({ layer, head, title, svg, box, told });
      }
    }
    const card = make("article", { class: "card", "aria-label": model.name }, make("h3", {}, model.name), verdict, make("p", { class: "what" }, "probability of each next token"), chances, figures, rnn);
    get("cards").append(card);
    return { index, card, verdict, chances, rnn, maps };
  });
  const pattern = (card, map) => results[card.index].layers[map.layer].patterns[map.head];
  const chosen = () => cards.filter(({ card }) => !card.hidden); // the models that are shown
  const weight = (card, map, q, k) => pattern(card, map)[q * string.ids.length + k];

  // ---- what depends on the string ----
  const draw = () => {
    string = language.read([language.bos, ...tokens]);
    results = models.map((model) => search.run(model, language, string.ids));
    strip.replaceChildren(...view.strip(language, string, choose));
    slider.max = string.ids.length - 1;
    slider.style.width = `calc(${string.ids.length}*var(--cell))`;
    for (const card of cards) for (const map of card.maps) view.drawMap(map.svg, language, string, pattern(card, map));
    const long = data.law.open.length - 1;
    const rest = tokens.length > long ? ` Longer than the ${long} brackets of training strings.` : "";
    const open = string.stacks.at(-1).map((i) => name(string.ids[i])).join(" ");
    if (string.wrong) status.textContent = `Not in the language: ${where(string.wrong.at)}, ${string.wrong.why}.`;
    else status.textContent = (open ? `${tokens.length} brackets, at the end still open: ${open}` : tokens.length ? `${tokens.length} brackets, balanced at the end.` : "The empty string. Type a bracket.") + (open && rest ? "." : "") + rest;
    status.classList.toggle("bad", Boolean(string.wrong));
    look(at);
  };

  // ---- what depends on the position as well ----
  const look = (position) => {
    at = Math.max(0, Math.min(position, string.ids.length - 1));
    slider.value = at;
    slider.setAttribute("aria-valuetext", where(at));
    for (const cell of strip.querySelectorAll(".cell")) {
      const i = +cell.dataset.at;
      for (const [mark, is] of [["now", i === at], ["late", i > at], ["top", i === top(at)]]) cell.classList.toggle(mark, is);
    }
    for (const arc of strip.querySelectorAll(".arc")) arc.classList.toggle("now", +arc.dataset.at === top(at));
    follow();
    const law = language.law(string, at);
    grammarPanel(law);
    for (const card of cards) fill(card, law);
    glance(law);
    tour(law);
    numbers();
    remember();
    later();
  };
  const choose = (position) => (look(position), caret());
  const follow = () => {
    const [box, cell] = [strip.parentElement.parentElement, strip.querySelectorAll(".cell")[at]];
    const left = cell.offsetLeft - strip.offsetLeft;
    if (left < box.scrollLeft || left + 2 * cell.offsetWidth > box.scrollLeft + box.clientWidth) box.scrollLeft = left - box.clientWidth / 2;
  };
  const grammarPanel = (law) => {
    const stack = string.stacks[at];
    const blocks = stack.map((i, level) => make("span", { class: `plate ${view.tone(language, string, i)}${level === stack.length - 1 ? " top" : ""}` }, view.label(name(string.ids[i]))));
    const empty = Array.from({ length: Math.max(0, language.D - stack.length) }, () => make("span", { class: "plate free" }));
    get("stack").replaceChildren(...blocks, ...empty);
    const words = stack.length ? `Depth ${string.depth[at]} of ${language.D}. On top: “${name(string.ids[top(at)])}”, so only “${name(string.ids[top(at)] + 1)}” can close.` : "Depth 0: nothing is open, so only an opening bracket can follow.";
    get("depth").textContent = law ? words : "The string has left the language: the grammar says nothing of what follows.";
    const exact = law ? view.bars(language, law.chances, null) : [];
    get("law").replaceChildren(...exact);
    get("law-note").textContent = !law ? "" : law.trained ? data.law_note : "No training string goes on from here; this is the law of prefixes.";
  };
  const fill = (card, law) => {
    const chances = results[card.index].chances(at);
    const [said, wanted] = [search.closing(language, chances), search.right(string, at)];
    const fine = wanted === null ? null : said.token === wanted;
    card.verdict.className = "verdict " + (fine === null ? "" : fine ? "good" : "bad");
    if (fine === null) card.verdict.textContent = law ? `nothing to close; ${percent(said.total)} of the probability is on closing brackets` : "no right answer";
    else card.verdict.textContent = `${fine ? "✓ closes right" : "✗ closes wrong"}: “${name(said.token)}” has ${exactly(said.share)} of the probability on closing brackets`;
    card.verdict.title = wanted === null ? "" : "the likeliest of the closing brackets, and its share of their probability";
    card.chances.replaceChildren(...view.bars(language, chances, law));
    const shown = results[card.index].layers;
    for (const map of card.maps) {
      mark(map.svg, "row", at, 0, at + 1);
      const [q, t] = [at, top(at)];
      const onTop = t >= 0 ? `${percent(weight(card, map, q, t))} on the top of the stack` : "no stack here";
      map.told.textContent = onTop;
      map.box.setAttribute("aria-label", `Attention of ${models[card.index].name}, ${map.title}. The query at ${where(at)}: ${onTop}. Arrow keys move from cell to cell.`);
    }
    if (shown.length > 1) return;
    const state = models[card.index].config.depth_embedding ? `state: depth ${string.depth[at]}` : "state: the token alone";
    card.rnn.textContent = `As a two-layer RNN: ${state}; log of the running sum ${shown[0].logz.map((sums) => sums[at].toFixed(2)).join(", ")}, whose terms are the framed row`;
  };
  const glance = (law) => {
    const wanted = search.right(string, at);
    const line = get("glance");
    if (wanted === null) return (line.textContent = law ? "Nothing is open here: no bracket to close." : "Outside the language there is no right answer.");
    const all = chosen();
    const closed = all.filter(({ index }) => search.closing(language, results[index].chances(at)).token === wanted).length;
    const last = all.map((card) => weight(card, card.maps.at(-1), at, top(at)));
    const spread = all.length > 1 ? `, ${percent(Math.min(...last))} to ${percent(Math.max(...last))}` : "";
    const mean = last.reduce((a, b) => a + b, 0) / last.length;
    line.textContent = `${closed} of ${all.length} would close with “${name(wanted)}”, which is right. Their last head puts ${percent(mean)} of its attention on the top of the stack${spread}.`;
  };

  // ---- slower things, a piece at a time ----
  const later = () => {
    const mine = ++job;
    const found = search.blocks(string, at).slice(-data.most_blocks);
    const table = get("pairs");
    get("near").replaceChildren();
    get("near-note").textContent = "";
    get("pairs-none").hidden = found.length > 0;
    if (!found.length || string.wrong) return table.replaceChildren();
    const heads = found.map(([first, last]) => {
      const block = string.ids.slice(first, last + 1).map(name).join("");
      return make("th", { scope: "col" }, make("code", {}, block.length > 8 ? name(string.ids[first]) + "…" + name(string.ids[last]) : block), make("small", {}, `${first}–${last}`));
    });
    const asked = chosen().map(({ index }) => index);
    const rows = asked.map((index) => make("tr", {}, make("th", { scope: "row" }, models[index].name)));
    table.replaceChildren(make("thead", {}, make("tr", {}, make("th", { scope: "col" }, "model"), ...heads)), make("tbody", {}, ...rows));
    let [model, block] = [0, 0];
    const work = () => {
      const until = performance.now() + 25;
      while (mine === job && model < asked.length && performance.now() < until) {
        const moved = search.without(models[asked[model]], language, string, at, found[block], results[asked[model]].chances(at));
        const bar = make("span", { class: "meter" }, make("span", { style: `width:${100 * moved}%` }));
        rows[model].append(make("td", {}, percent(moved), bar));
        if (++block === found.length) [model, block] = [model + 1, 0];
      }
      if (mine === job && model < asked.length) setTimeout(work);
      else if (mine === job) table.dataset.done = "yes";
    };
    delete table.dataset.done;
    setTimeout(work, 60);
  };
  const near = () => {
    const wanted = search.right(string, at);
    const [list, said] = [get("near"), get("near-note")];
    list.replaceChildren();
    if (wanted === null) return (said.textContent = "There is nothing to close at this position: choose one where a bracket is open.");
    const mine = ++job;
    const asked = chosen().map(({ index }) => models[index]);
    let model = 0;
    const start = () => search.nearest(asked[model], language, string, at, wanted, data.most_tried);
    let steps = start();
    said.textContent = "Searching …";
    const work = () => {
      const until = performance.now() + 30;
      while (mine === job && model < asked.length && performance.now() < until) {
        const { done, value } = steps.next();
        if (!done) continue;
        list.append(result(asked[model], value));
        if (++model < asked.length) steps = start();
      }
      if (mine === job && model < asked.length) setTimeout(work);
      else if (mine === job) said.textContent = "Pairs were put in one at a time, each where it hurts most. That none was found is no proof: tl-dyck certify proves.";
    };
    setTimeout(work);
  };
  const result = (model, found) => {
    if (!found.ids) return make("li", {}, make("strong", {}, model.name), ` closes right in all ${found.tried.toLocaleString("en")} strings tried, with up to ${found.pairs} pairs more`);
    const shown = found.ids.slice(1).map((token, i) => make(found.added.includes(i + 1) ? "ins" : "span", {}, name(token)));
    const load = () => (set(found.ids.slice(1)), caret(), get("string").scrollIntoView({ block: "start" }));
    const count = `${found.pairs} ${found.pairs === 1 ? "pair" : "pairs"}`;
    const words = ` with ${count} says “${name(found.token)}” (${exactly(found.share)} of the probability on closing brackets) after `;
    return make("li", {}, make("strong", {}, model.name), words, make("code", { class: "found" }, ...shown), " ", make("button", { type: "button", class: "small", onclick: load }, "Look"));
  };

  // ---- one path through one model: the tour, and what made a weight ----
  const seen = (card, layer, head) => ({ language, string, at, layer, head, result: results[card.index], config: models[card.index].config, name: models[card.index].name });
  const paths = cards.flatMap((card) => card.maps.map((map) => ({ card, map, words: `${models[card.index].name}, ${map.title}` })));
  const tour = (law) => {
    get("tour").hidden = !step;
    document.body.classList.toggle("touring", step > 0);
    if (!step) return;
    const { card, map } = paths[get("tour-path").value];
    const all = path.steps(seen(card, map.layer, map.head), law);
    const { title, text, body } = all[step - 1];
    get("tour-title").textContent = `Step ${step} of ${all.length}: ${title}`;
    get("tour-text").textContent = text;
    get("tour-body").replaceChildren(...body);
    get("tour-back").disabled = step === 1;
    get("tour-next").disabled = step === all.length;
  };
  const go = (to) => {
    step = to;
    look(at);
    const now = get(step ? "tour-title" : "tour-start");
    now.focus({ preventScroll: true });
    now.scrollIntoView({ block: "start" });
  };
  const numbers = () => {
    get("numbers").hidden = !clicked;
    if (!clicked) return;
    const { card, map } = clicked;
    const key = Math.min(clicked.key, at);
    const shown = seen(card, map.layer, map.head);
    get("numbers-title").textContent = `${shown.name}, ${map.title}: from ${where(at)} to ${where(key)}`;
    get("numbers-text").textContent = path.weight(shown, key);
    get("numbers-body").replaceChildren(path.keys(shown, key).table);
  };
  const explain = (card, map, key) => {
    clicked = { card, map, key };
    card.card.after(get("numbers"));
    numbers();
  };

  // ---- which models are shown: families, and seeds in them ----
  const choices = () => {
    const families = [...new Set(models.map(({ family }) => family))];
    const box = (label, ids) => {
      const input = make("input", { type: "checkbox", checked: true, "data-models": ids.join(" ") });
      input.addEventListener("input", () => pick(ids, input.checked));
      return make("label", {}, input, " ", label);
    };
    const rows = families.map((family) => {
      const ids = models.flatMap((model, i) => (model.family === family ? [i] : []));
      const own = ids.map((i) => box(models[i].name, [i]));
      return make("div", { class: "family" }, ...(families.length > 1 && ids.length > 1 ? [make("strong", {}, box(family, ids))] : []), ...own);
    });
    get("families").replaceChildren(...rows);
    get("choice").hidden = models.length < 2;
    get("tour-path").replaceChildren(...paths.map(({ words }, i) => make("option", { value: i }, words)));
    // the last head of the first model: the one that the sentence above the cards is about
    get("tour-path").value = cards[0].maps.length - 1;
  };
  const pick = (ids, on) => {
    const wanted = new Set(chosen().map(({ index }) => index));
    for (const i of ids) on ? wanted.add(i) : wanted.delete(i);
    if (wanted.size) showOnly(wanted); // the last one stays
    else showOnly(new Set([ids[0]]));
    look(at);
  };
  const showOnly = (wanted) => {
    for (const { card, index } of cards) card.hidden = !wanted.has(index);
    for (const input of get("families").querySelectorAll("input")) {
      const ids = input.dataset.models.split(" ");
      input.checked = ids.every((i) => wanted.has(+i));
      input.indeterminate = !input.checked && ids.some((i) => wanted.has(+i));
    }
    if (clicked && !wanted.has(clicked.card.index)) clicked = null;
    get("choice").querySelector("summary").textContent = `Models: ${wanted.size} of ${models.length} shown`;
  };

  // ---- what is typed, pressed, linked ----
  const set = (wanted, position = wanted.length) => {
    tokens = wanted.slice(0, data.most);
    field.value = language.write(tokens);
    at = Math.min(position, tokens.length);
    draw();
  };
  const caret = () => {
    if (document.activeElement !== field) return;
    const to = language.write(tokens.slice(0, at)).length;
    field.setSelectionRange(to, to);
  };
  const type = () => {
    const { tokens: typed, rest } = language.parse(field.value);
    tokens = typed.slice(0, data.most);
    at = Math.min(language.parse(field.value.slice(0, field.selectionStart)).tokens.length, tokens.length);
    draw();
    if (typed.length > data.most) status.textContent = `This page reads at most ${data.most} brackets. ` + status.textContent;
    else if (rest) status.textContent = `“${rest.slice(0, 12)}” is no bracket of this language (${language.brackets.join(" ")}). ` + status.textContent;
  };
  const press = (token) => set([...tokens.slice(0, at), token, ...tokens.slice(at)], at + 1);
  const remember = () => {
    try {
      const some = chosen().length < models.length ? { models: chosen().map(({ index }) => index).join(" ") } : {};
      const rest = { ...(show.value === "all" ? {} : { show: show.value }), ...some, ...(step ? { tour: step } : {}) };
      history.replaceState(null, "", "#" + new URLSearchParams({ string: language.write(tokens), at, ...rest }));
    } catch {} // a frame in a notebook has no address
  };
  const recall = () => {
    const asked = new URLSearchParams(location.hash.slice(1));
    const { tokens: found } = language.parse(asked.get("string") ?? data.string);
    const position = parseInt(asked.get("at"), 10);
    const { stacks } = language.read([language.bos, ...found]);
    const listed = (asked.get("models") ?? "").split(" ").filter((text) => /^\d+$/.test(text) && +text < models.length).map(Number);
    showOnly(new Set(listed.length ? listed : models.keys()));
    step = Math.max(0, Math.min(5, parseInt(asked.get("tour"), 10) || 0));
    set(found, Number.isNaN(position) ? Math.max(0, stacks.findLastIndex((stack) => stack.length)) : Math.max(0, position));
    if (document.querySelector(`#show option[value="${CSS.escape(asked.get("show") ?? "")}"]`)) show.value = asked.get("show");
    filter();
  };
  // one head in all models, large, or all heads
  const filter = () => {
    for (const card of cards) for (const map of card.maps) map.box.parentElement.hidden = show.value !== "all" && show.value !== `${map.layer}-${map.head}`;
    remember();
  };
  const buttons = {
    ...Object.fromEntries(language.brackets.map((bracket, token) => [`key-${token}`, () => press(token)])),
    back: () => at > 0 && set([...tokens.slice(0, at - 1), ...tokens.slice(at)], at - 1),
    clear: () => set([]),
    random: () => set(language.draw(data.law.open.length - 2)),
    longer: () => set(language.draw(data.most)),
    previous: () => choose(at - 1),
    next: () => choose(at + 1),
    search: near,
    "tour-start": () => go(1),
    "tour-back": () => go(step - 1),
    "tour-next": () => go(step + 1),
    "tour-close": () => go(0),
    "numbers-close": () => ((clicked = null), numbers()),
  };
  for (const [id, act] of Object.entries(buttons)) get(id).addEventListener("click", act);
  field.addEventListener("input", type);
  document.addEventListener("selectionchange", () => {
    if (document.activeElement !== field || field.selectionStart !== field.selectionEnd) return;
    const before = language.parse(field.value.slice(0, field.selectionStart)).tokens.length;
    if (before !== at && before <= tokens.length) look(before);
  });
  slider.addEventListener("input", () => look(+slider.value));
  show.addEventListener("input", filter);
  get("tour-path").addEventListener("input", () => look(at));
  addEventListener("hashchange", recall);

  // ---- pointing at a cell of a map, or walking there ----
  const point = (card, map, cell) => {
    for (const each of cards) for (const svg of each.maps.map((m) => m.svg)) unmark(svg, "cursor");
    if (!cell) return null;
    const [q, k] = cell;
    const same = cards.map((each) => each.maps.find((m) => m.layer === map.layer && m.head === map.head));
    const all = cards.flatMap((each, i) => (same[i] ? [weight(each, same[i], q, k)] : []));
    for (const each of same) if (each) mark(each.svg, "cursor", q, k);
    const onTop = k === top(q) ? ", the top of the stack" : "";
    const rest = all.length > 1 ? `\nall models: ${Math.min(...all).toFixed(3)} to ${Math.max(...all).toFixed(3)}` : "";
    return `weight ${weight(card, map, q, k).toFixed(3)} (${models[card.index].name}, ${map.title})\nquery ${where(q)}\nkey ${where(k)}${onTop}${rest}`;
  };
  for (const card of cards) {
    for (const map of card.maps) {
      let cell = null;
      map.box.addEventListener("pointermove", (event) => {
        const words = point(card, map, cellAt(map.svg, event, string.ids.length));
        words ? showTip(words, event) : hideTip();
      });
      map.box.addEventListener("pointerleave", () => (point(card, map, null), hideTip()));
      map.box.addEventListener("click", (event) => {
        const found = cellAt(map.svg, event, string.ids.length);
        if (!found) return;
        choose((cell = found)[0]);
        explain(card, map, cell[1]);
      });
      map.box.addEventListener("focus", () => (cell = [at, Math.max(0, top(at))]));
      map.box.addEventListener("blur", () => (point(card, map, null), look(at)));
      map.box.addEventListener("keydown", (event) => {
        if (event.key === "Enter") return choose(cell[0]), explain(card, map, cell[1]), get("numbers-title").focus();
        const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
        if (!step) return;
        event.preventDefault();
        const q = Math.max(0, Math.min(cell[0] + step[0], string.ids.length - 1));
        cell = [q, Math.max(0, Math.min(cell[1] + step[1], q))];
        map.told.textContent = point(card, map, cell);
        map.told.setAttribute("aria-live", "polite");
      });
    }
  }
  document.addEventListener("pointermove", (event) => {
    const box = event.target.closest?.("[data-tip]");
    if (box) showTip(box.dataset.tip, event);
    else if (!event.target.closest?.(".mapbox")) hideTip();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => (view.readShades(), draw()));
  view.readShades();
  choices();
  recall();
  document.documentElement.dataset.drawn = "yes";
})();
