// Drawing: elements, the string with its arcs, attention maps, bars of probabilities.
const view = (() => {
  const SVG = "http://www.w3.org/2000/svg";
  const make = (name, attributes = {}, ...children) => {
    const svg = ["svg", "path", "text", "image", "rect"].includes(name);
    const made = svg ? document.createElementNS(SVG, name) : document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) {
      if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
      else if (value !== undefined && value !== null && value !== false) made.setAttribute(key, value === true ? "" : value);
    }
    made.append(...children.filter((child) => child !== null && child !== undefined));
    return made;
  };
  // nothing but 0 and 1, and what rounding leaves of them, is written as such
  const percent = (value) => {
    if (Math.min(Math.abs(value), Math.abs(1 - value)) < 1e-9) return `${100 * Math.round(value)} %`;
    return value < 0.0005 ? "< 0.1 %" : value > 0.9995 ? "> 99.9 %" : `${(100 * value).toFixed(1)} %`;
  };
  // near 1 with two digits of what it lacks: 99.99938 %
  const exactly = (value) => (value > 0.9995 && 1 - value > 1e-9 ? `${(100 * value).toFixed(1 - Math.floor(Math.log10(100 * (1 - value))))} %` : percent(value));
  const label = (text) => (text.length > 5 ? text.slice(0, 4) + "…" : text);
  // colour of a bracket, shared with its partner; none for BOS
  const tone = (language, string, i) => {
    if (string.ids[i] === language.bos) return "";
    const outer = string.depth[i] - (language.closes(string.ids[i]) ? 0 : 1);
    return "d" + (((outer % 6) + 6) % 6);
  };
  const nameOf = (language, token) => (token === language.bos ? "bos" : (language.brackets[token] ?? "other"));

  // ---- the string: arcs above, a cell for each token ----
  const arcs = (language, string) => {
    const n = string.ids.length;
    const deepest = Math.max(1, ...string.depth);
    const height = 0.36 * deepest + 0.45;
    const svg = make("svg", { class: "arcs", viewBox: `0 0 ${n} ${height}`, "aria-hidden": "true", style: `width:calc(${n}*var(--cell));height:calc(${height}*var(--cell))` });
    string.ids.forEach((token, i) => {
      if (!language.opens(token)) return;
      const top = 0.2 + 0.36 * (Math.min(Math.max(string.depth[i], 1), deepest) - 1);
      const [bottom, end] = [height - 0.1, string.pair[i]];
      const path = `M${i + 0.5} ${bottom}V${top}${end >= 0 ? `H${end + 0.5}V${bottom}` : `H${n}`}`;
      svg.append(make("path", { class: `arc ${tone(language, string, i)}${end < 0 ? " dashed" : ""}`, "data-at": i, d: path }));
    });
    return svg;
  };
  const strip = (language, string, choose) => {
    const cells = string.ids.map((token, i) => {
      const name = nameOf(language, token);
      const inner = make("span", { class: "token" + (token === language.bos ? " bos" : "") }, label(name));
      const wrong = string.wrong && string.wrong.at === i;
      const said = make("span", { class: "at" }, String(i));
      return make("span", { class: `cell ${tone(language, string, i)}${wrong ? " wrong" : ""}`, "data-at": i, onclick: () => choose(i) }, inner, said);
    });
    return [arcs(language, string), make("div", { class: "cells" }, ...cells)];
  };

  // ---- attention maps: an image of n × n pixels, and labels and rings above it, in one coordinate system ----
  let shades = [];
  const readShades = () => {
    const style = getComputedStyle(document.documentElement);
    shades = Array.from({ length: 24 }, (_, i) => {
      const code = parseInt(style.getPropertyValue(`--h${i}`).trim().slice(1), 16);
      return [code >> 16, (code >> 8) & 255, code & 255];
    });
  };
  const picture = (pattern, n) => {
    const canvas = document.createElement("canvas");
    canvas.width = canvas.height = n;
    const context = canvas.getContext("2d");
    const image = context.createImageData(n, n);
    for (let q = 0; q < n; q++) {
      for (let k = 0; k <= q; k++) {
        const shade = shades[Math.round(Math.sqrt(Math.min(1, pattern[q * n + k])) * 23)] ?? [0, 0, 0];
        image.data.set([...shade, 255], 4 * (q * n + k));
      }
    }
    context.putImageData(image, 0, 0);
    return canvas.toDataURL();
  };
  const drawMap = (svg, language, string, pattern) => {
    const n = string.ids.length;
    svg.setAttribute("viewBox", `-1.5 -.2 ${n + 1.7} ${n + 1.7}`);
    const image = make("image", { width: n, height: n, preserveAspectRatio: "none", href: picture(pattern, n) });
    const rings = string.stacks.map((stack, q) => (stack.length ? `M${stack.at(-1) + 0.15} ${q + 0.5}a.35 .35 0 1 0 .7 0a.35 .35 0 1 0-.7 0z` : ""));
    svg.replaceChildren(image, make("path", { class: "stack", d: rings.join("") }));
    if (n > 44) return;
    string.ids.forEach((token, i) => {
      const name = label(nameOf(language, token));
      const style = name.length > 1 ? `font-size:${Math.min(1, 1.6 / name.length)}px` : null;
      svg.append(make("text", { class: "q", x: -0.25, y: i + 0.5, style }, name), make("text", { class: "k", x: i + 0.5, y: n + 0.75, style }, name));
    });
  };

  // ---- next-token probabilities: a bar for the model, a line for the law ----
  const bars = (language, chances, law) => {
    // tokens of a model that are none of the language, as one
    const others = chances.slice(language.bos + 1).reduce((sum, chance) => sum + chance, 0);
    const rows = [...chances.slice(0, language.bos + 1), others].map((chance, token) => {
      if (token >= language.bos && chance < 0.005) return null;
      const exact = law ? (law.chances[token] ?? 0) : undefined;
      const mark = law && make("span", { class: "law", style: `left:${100 * exact}%` });
      const bar = make("span", { class: "track" }, make("span", { class: "fill", style: `width:${100 * chance}%` }), mark);
      const name = nameOf(language, token);
      const said = law ? `${percent(chance)}, exact ${percent(exact)}` : percent(chance);
      return make("div", { class: "chance", "data-tip": `“${name}” next: ${said}` }, make("span", { class: "name" }, label(name)), bar, make("span", { class: "number" }, percent(chance)));
    });
    return rows.filter(Boolean);
  };
  return { make, percent, exactly, label, tone, nameOf, strip, drawMap, bars, readShades };
})();
