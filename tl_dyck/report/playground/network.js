"use strict";
// The forward pass of a Dyck model, with every attention pattern. Matrices are row by row, in double precision.
const network = (() => {
  const numbers = ({ shapes, bits, data }) => {
    const text = atob(data);
    const bytes = Uint8Array.from(text, (letter) => letter.charCodeAt(0));
    const columns = Object.values(shapes).reduce((sum, [, columns]) => sum + columns, 0);
    const scales = bits === 16 ? new Float32Array(bytes.buffer, 0, columns) : null;
    const whole = bits === 16 ? new Int16Array(bytes.buffer, 4 * columns) : new (bits === 32 ? Float32Array : Float64Array)(bytes.buffer);
    const found = {};
    let [at, column] = [0, 0];
    for (const [name, [rows, width]] of Object.entries(shapes)) {
      const matrix = new Float64Array(rows * width);
      for (let i = 0; i < matrix.length; i++) matrix[i] = whole[at + i] * (scales ? scales[column + (i % width)] : 1);
      found[name] = matrix;
      at += matrix.length;
      column += width;
    }
    return found;
  };

  // x W + b, for n rows
  const affine = (x, n, W, b) => {
    const width = b.length;
    const inside = x.length / n;
    const out = new Float64Array(n * width);
    for (let row = 0; row < n; row++) {
      const to = row * width;
      for (let j = 0; j < width; j++) out[to + j] = b[j];
      for (let i = 0; i < inside; i++) {
        const value = x[row * inside + i];
        if (value === 0) continue;
        const from = i * width;
        for (let j = 0; j < width; j++) out[to + j] += value * W[from + j];
      }
    }
    return out;
  };
  const sum = (a, b) => a.map((value, i) => value + b[i]);
  // each row less its mean, divided by what `size` makes of its sum of squares
  const normed = (x, n, size, w, b) => {
    const d = x.length / n;
    const out = new Float64Array(x.length);
    for (let row = 0; row < n; row++) {
      let [mean, squares] = [0, 0];
      for (let i = 0; i < d; i++) mean += x[row * d + i] / d;
      for (let i = 0; i < d; i++) squares += (out[row * d + i] = x[row * d + i] - mean) ** 2;
      const scale = size(squares, d);
      for (let i = 0; i < d; i++) out[row * d + i] = (out[row * d + i] / scale) * (w ? w[i] : 1) + (b ? b[i] : 0);
    }
    return out;
  };

  // Abramowitz and Stegun 7.1.26: within 1.5e-7
  const erf = (x) => {
    const t = 1 / (1 + 0.3275911 * Math.abs(x));
    const rest = ((((1.061405429 * t - 1.453152027) * t + 1.421413741) * t - 0.284496736) * t + 0.254829592) * t;
    return Math.sign(x) * (1 - rest * Math.exp(-x * x));
  };
  const activations = {
    /* filled in: the activations */
  };

  // scores and patterns: of each head a lower triangle in an n × n matrix; logz: of each head log Σ exp(score), by query
  const attention = (x, n, part, { n_heads, d_head, attn_scale }) => {
    const width = n_heads * d_head;
    const [q, k, v] = ["Q", "K", "V"].map((name) => part["W_" + name] && affine(x, n, part["W_" + name], part["b_" + name]));
    const z = new Float64Array(n * width);
    const [all, patterns, logz] = [[], [], []];
    for (let head = 0; head < n_heads; head++) {
      const scores = new Float64Array(n * n);
      const pattern = new Float64Array(n * n);
      const sums = new Float64Array(n);
      for (let i = 0; i < n; i++) {
        let most = -Infinity;
        for (let j = 0; j <= i; j++) {
          let score = 0;
          if (q) for (let e = head * d_head; e < (head + 1) * d_head; e++) score += q[i * width + e] * k[j * width + e];
          scores[i * n + j] = score /= attn_scale;
          most = Math.max(most, score);
        }
        let total = 0;
        for (let j = 0; j <= i; j++) total += pattern[i * n + j] = Math.exp(scores[i * n + j] - most);
        sums[i] = most + Math.log(total);
        for (let j = 0; j <= i; j++) {
          const weight = (pattern[i * n + j] /= total);
          for (let e = head * d_head; e < (head + 1) * d_head; e++) z[i * width + e] += weight * v[j * width + e];
        }
      }
      all.push(scores);
      patterns.push(pattern);
      logz.push(sums);
    }
    return { out: affine(z, n, part.W_O, part.b_O), scores: all, patterns, logz };
  };

  // packed: of Python's `pack`; gives a function of tokens (BOS first) and their depths, clipped
  return (packed) => {
    const weights = numbers(packed);
    const { config, shapes } = packed;
    const { block, d_model, depth_embedding, n_layers, eps, ln_c, act } = config;
    const layers = Array.from({ length: n_layers }, (_, layer) => {
      const own = Object.keys(weights).filter((name) => name.startsWith(layer + "."));
      return Object.fromEntries(own.map((name) => [name.slice(name.indexOf(".") + 1), weights[name]]));
    });
    // LayerNorm, where the model has it
    const norm = (x, n, part, name) => !part[name + ".w"] ? x : normed(x, n, (squares, d) => Math.sqrt(squares / d + eps), part[name + ".w"], part[name + ".b"]);
    const unit = (x, n) => normed(x, n, (squares) => Math.max(Math.sqrt(squares), ln_c));
    return (tokens, depths, nDepths) => {
      const n = tokens.length;
      let x = new Float64Array(n * d_model);
      for (let i = 0; i < n; i++) {
        const row = depth_embedding ? tokens[i] * nDepths + depths[i] : tokens[i];
        for (let e = 0; e < d_model; e++) x[i * d_model + e] = weights.embed[row * d_model + e] + (weights.pos ? weights.pos[i * d_model + e] : 0);
      }
      const seen = [];
      for (const part of layers) {
        const made = attention(norm(x, n, part, "ln1"), n, part, config);
        const { out } = made;
        seen.push({ ...made, read: x });
        if (block === "bare") {
          x = out;
          continue;
        }
        x = sum(x, block === "eq6" ? unit(out, n) : out);
        if (block === "eq49") x = unit(x, n);
        if (!part.W_in) continue; // attention only
        const hidden = affine(norm(x, n, part, "ln2"), n, part.W_in, part.b_in).map(activations[act]);
        x = sum(x, affine(hidden, n, part.W_out, part.b_out));
      }
      const last = x;
      x = norm(x, n, weights, "ln_final");
      const logits = affine(x, n, weights.W_U, weights.b_U);
      const width = shapes.b_U[1];
      const row = (at) => logits.subarray(at * width, (at + 1) * width);
      const chances = (at) => {
        const most = Math.max(...row(at));
        const odds = Array.from(row(at), (logit) => Math.exp(logit - most));
        const total = odds.reduce((a, b) => a + b, 0);
        return odds.map((value) => value / total);
      };
      return { n, layers: seen, last, logits: row, chances };
    };
  };
})();
