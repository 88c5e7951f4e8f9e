// The numbers of one path through a model: embedding, scores, softmax, output. For the tour, and behind a clicked weight.
const path = (() => {
  const { make, percent, nameOf, exactly } = view;
  const digits = (value) => (value !== 0 && (Math.abs(value) < 0.001 || Math.abs(value) >= 10000) ? value.toExponential(2) : value.toFixed(3));
  const signed = (value) => (value < 0 ? "−" : "") + digits(Math.abs(value));

  // a vector as a row of cells: the darker, the larger; one colour for each sign
  const vector = (values, said) => {
    const largest = Math.max(1e-12, ...values.map(Math.abs));
    const cells = Array.from(values, (value, i) => make("span", { class: value < 0 ? "less" : "more", style: `--share:${((100 * Math.abs(value)) / largest).toFixed(1)}%`, "data-tip": `${i}: ${signed(value)}` }));
    return make("div", { class: "vector", role: "img", "aria-label": `${said}: ${values.length} numbers, the largest in size ${digits(largest)}` }, ...cells);
  };
  const rowOf = (matrix, n, at) => matrix.subarray((at * matrix.length) / n, ((at + 1) * matrix.length) / n);

  // a query's row of one head: a line for each key, with its score, exp(score − max) and weight
  const keys = ({ language, string, result, layer, head, at }, marked, weights = true) => {
    const { n, layers } = result;
    const scores = layers[layer].scores[head].subarray(at * n, at * n + at + 1);
    const pattern = layers[layer].patterns[head].subarray(at * n, at * n + at + 1);
    const [most, top] = [Math.max(...scores), string.stacks[at].at(-1) ?? -1];
    const span = most - Math.min(...scores) || 1;
    const bar = (share) => make("span", { class: "meter" }, make("span", { style: `width:${(100 * share).toFixed(2)}%` }));
    const rows = Array.from(scores, (score, k) => {
      const last = weights ? [make("td", {}, digits(Math.exp(score - most))), make("td", {}, percent(pattern[k]), bar(pattern[k]))] : [];
      const size = make("td", {}, signed(score), weights ? null : bar(1 - (most - score) / span));
      const where = k === top ? " (top of the stack)" : "";
      return make("tr", { class: k === marked ? "marked" : null }, make("th", { scope: "row" }, make("code", {}, nameOf(language, string.ids[k])), ` at ${k}${where}`), size, ...last);
    });
    const titles = ["key", "score", ...(weights ? ["exp(score − max)", "weight"] : [])];
    const head_ = make("thead", {}, make("tr", {}, ...titles.map((title) => make("th", { scope: "col" }, title))));
    const table = make("table", { class: "keys-table" }, head_, make("tbody", {}, ...rows));
    const sum = Array.from(scores, (score) => Math.exp(score - most)).reduce((a, b) => a + b, 0);
    return { table: make("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "table, scrolls" }, table), scores, pattern, most, sum };
  };

  // what made one weight, in a sentence
  const weight = (seen, k) => {
    const { scores, pattern, most, sum } = keys(seen, k);
    const power = `exp(${signed(scores[k])} − ${most < 0 ? `(${signed(most)})` : signed(most)})`;
    if (seen.config.uniform) return `This head has no scores: it attends to all ${scores.length} positions alike, so each weight is 1 / ${scores.length} = ${digits(pattern[k])}.`;
    return `The score, query · key divided by ${digits(seen.config.attn_scale)}, is ${signed(scores[k])}. ${power} = ${digits(Math.exp(scores[k] - most))}; divided by ${digits(sum)}, the sum over all keys, it is ${digits(pattern[k])}.`;
  };

  const logits = ({ language, result, at }, law) => {
    const [values, chances] = [result.logits(at), result.chances(at)];
    const rows = Array.from(values).slice(0, language.bos + 1).map((value, token) =>
      make("tr", {}, make("th", { scope: "row" }, make("code", {}, nameOf(language, token))), make("td", {}, signed(value)), make("td", {}, percent(chances[token])), make("td", {}, law ? percent(law.chances[token] ?? 0) : "")));
    const titles = ["next token", "logit", "probability", "exactly"];
    return make("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "table, scrolls sideways" }, make("table", {}, make("thead", {}, make("tr", {}, ...titles.map((title) => make("th", { scope: "col" }, title)))), make("tbody", {}, ...rows)));
  };

  // the five steps; each has a title, a sentence or two, and something to look at
  const steps = (seen, law) => {
    const { language, string, result, layer, head, at, config, name } = seen;
    const { n, layers, last } = result;
    const token = `“${nameOf(language, string.ids[at])}”`;
    const wanted = search.right(string, at);
    const said = search.closing(language, result.chances(at));
    const [here, first] = [`layer ${layer}${config.n_heads > 1 ? `, head ${head}` : ""}`, layers[0].read];
    const read = config.depth_embedding ? `${token} at depth ${string.depth[at]}` : token;
    const top = string.stacks[at].at(-1);
    const onTop = top === undefined ? "" : ` ${percent(layers[layer].patterns[head][at * n + top])} of it is on the top of the stack.`;
    const also = layer ? [make("p", {}, `What the layers below layer ${layer} made of it:`), vector(rowOf(layers[layer].read, n, at), "what the layer reads")] : [];
    const scored = config.uniform
      ? `This model attends to all positions alike: in ${here} there are no queries and no keys, and each score is 0.`
      : `In ${here}, the vector at position ${at} makes a query, and each position up to it makes a key. Their product, divided by ${digits(config.attn_scale)}, is the score.`;
    const asked = wanted === null ? "Nothing is open here, so there is no bracket to close. Choose another position to see a question." : `Only “${nameOf(language, wanted)}” can close the top of the stack. Does the model know?`;
    const answer = wanted === null ? "" : ` Of the closing brackets it prefers “${nameOf(language, said.token)}”, with ${exactly(said.share)} of their probability. ${said.token === wanted ? "That is right." : "That is wrong."}`;
    return [
      { title: "The question", text: `${name} has read the string up to ${token} at position ${at}. ${asked}`, body: [] },
      { title: "Embedding", text: `Each token becomes a vector of ${config.d_model} numbers. At position ${at} the model looks up ${read}${config.positions ? ", and adds a vector for the position" : ""}.`, body: [vector(rowOf(first, n, at), "embedding"), ...also] },
      { title: "Scores", text: scored, body: [keys(seen, top, false).table] },
      { title: "Softmax", text: `Each score goes through exp, and the results are divided by their sum. These weights are the attention at this position: the framed row of the map.${onTop}`, body: [keys(seen, top).table] },
      { title: "Output", text: `The weights mix the values of all positions: the output of attention. The rest of the model goes from there to a last vector, and to a logit for each token.${answer}`, body: [make("p", {}, "Output of attention:"), vector(rowOf(layers[layer].out, n, at), "output of attention"), make("p", {}, "After the last layer:"), vector(rowOf(last, n, at), "after the last layer"), logits(seen, law)] },
    ];
  };
  return { keys, weight, steps };
})();
