"use strict";
// Draws what torchferry.report.explorer packed: a tree of modules, the graph around one node, and
// what is known of it. Text from outside is only ever set as text.
const MOST = 40, ACROSS = 5, BOX = [142, 38], GAP = [16, 34];
const TONES = ["", "good", "bad", "warn", "muted"];
const SVG = "http://www.w3.org/2000/svg";

function make(tag, attributes = {}, ...children) {
  const svg = ["svg", "g", "rect", "path", "text", "title"].includes(tag);
  const element = svg ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== undefined && value !== false) element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

// A path or a long name, with places where a line may end.
function breakable(text) {
  const parts = text.split(/(?<=[._/:])(?=[A-Za-z])/);
  return parts.flatMap((part, n) => n ? [make("wbr"), part] : [part]);
}

async function unpack(text) {
  const bytes = Uint8Array.from(atob(text.trim()), c => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  return JSON.parse(await new Response(stream).text());
}

class Explorer {
  constructor(root, data) {
    this.root = root;
    this.data = data;
    this.count = data.names.length;
    this.reads = data.reads.map((near, i) => near.map(step => i - step));
    this.users = Array.from({length: this.count}, () => []);
    this.reads.forEach((from, i) => from.forEach(j => this.users[j].push(i)));
    this.linked = this.reads.some(from => from.length);
    this.tree = this.grow();
    this.build();
    this.show(data.first, true);
  }

  // The tree ------------------------------------------------------------------------------------

  grow() {
    const root = {name: "the model", path: "", parts: new Map(), own: [], worst: -1, count: 0};
    for (let i = 0; i < this.count; i++) {
      let node = root;
      const path = this.data.paths[this.data.path[i]];
      this.weigh(node, i);
      for (const step of path ? path.split(".") : []) {
        if (!node.parts.has(step)) {
          const below = node.path ? `${node.path}.${step}` : step;
          node.parts.set(step, {name: step, path: below, parts: new Map(), own: [], worst: -1,
                                count: 0});
        }
        node = node.parts.get(step);
        this.weigh(node, i);
      }
      node.own.push(i);
    }
    return root;
  }

  weigh(node, i) {
    node.count += 1;
    if (node.worst < 0 || this.weight(i) > this.weight(node.worst)) node.worst = i;
  }

  weight(i) {
    const tone = TONES[this.data.tone[i]];
    return (tone === "bad" ? 1000 : tone === "warn" ? 500 : tone === "muted" ? -1 : 0)
      + this.data.heat[i];
  }

  branch(node, depth) {
    const item = this.linked ? node.worst : node.own.length ? node.own[0] : node.worst;
    const open = node.parts.size > 0;
    const row = make("div", {class: "row", role: "treeitem", tabindex: 0, "data-path": node.path,
                             title: node.path || node.name,
                             "aria-expanded": open ? "false" : undefined},
      make("span", {class: "toggle"}, open ? "\u25b8" : ""),
      make("span", {class: `swatch ${this.look(item)}`, style: this.shade(item)}),
      make("span", {class: "name"}, node.name),
      make("span", {class: "count"}, this.linked ? String(node.count)
        : node.own.length ? this.kind(item) : ""));
    row.style.paddingLeft = `${6 + 14 * depth}px`;
    const below = make("div", {role: "group"});
    const unfold = force => {
      const wanted = force ?? row.getAttribute("aria-expanded") !== "true";
      if (!open || wanted === (row.getAttribute("aria-expanded") === "true")) return;
      row.setAttribute("aria-expanded", String(wanted));
      row.firstChild.textContent = wanted ? "\u25be" : "\u25b8";
      below.replaceChildren(...wanted
        ? [...node.parts.values()].map(part => this.branch(part, depth + 1)) : []);
    };
    row.addEventListener("click", event => {
      if (event.target === row.firstChild || !this.linked) unfold();
      else unfold(true);
      if (event.target !== row.firstChild) this.show(item, true, node.path);
    });
    row.addEventListener("keydown", event => {
      if (event.key === "Enter" || event.key === " ") this.show(item, true, node.path);
      else if (event.key === "ArrowRight") unfold(true);
      else if (event.key === "ArrowLeft") unfold(false);
      else return;
      event.preventDefault();
    });
    const whole = make("div", {}, row, below);
    whole.unfold = unfold;
    return whole;
  }

  reveal(path) {
    let place = this.trunk, node = this.tree;
    for (const step of path ? path.split(".") : []) {
      place.unfold(true);
      const at = [...node.parts.keys()].indexOf(step);
      node = node.parts.get(step);
      place = place.lastChild.children[at];
    }
    for (const row of this.side.querySelectorAll(".row.here")) row.classList.remove("here");
    const row = place.firstChild;
    row.classList.add("here");
    const top = row.offsetTop - this.side.offsetTop;
    if (top < this.side.scrollTop || top > this.side.scrollTop + this.side.clientHeight - 40) {
      this.side.scrollTop = top - this.side.clientHeight / 2;
    }
  }

  // The whole -----------------------------------------------------------------------------------

  build() {
    const find = make("input", {type: "search", placeholder: "find a node or module",
                                "aria-label": "find", oninput: () => this.hint(find.value)});
    find.addEventListener("keydown", event => {
      if (event.key === "Enter" && this.hits.firstChild) this.hits.firstChild.click();
      if (event.key === "Escape") this.hint("");
    });
    this.hits = make("div", {class: "hits"});
    const first = make("button", {type: "button", onclick: () => this.show(this.data.first, true)},
      "back to the first");
    const legend = make("div", {class: "legend"});
    for (const [tone, words] of this.data.legend) {
      legend.append(make("span", {}, make("span", {class: `swatch ${tone || "scale"}`}), words));
    }
    this.trunk = this.branch(this.tree, 0);
    this.side = make("div", {class: "side", role: "tree", "aria-label": "modules"}, this.trunk);
    this.picture = make("div", {class: "picture"});
    this.about = make("div", {class: "about", "aria-live": "polite"});
    this.trunk.unfold(true);
    this.root.classList.toggle("linked", this.linked);
    this.root.replaceChildren(make("div", {class: "bar"}, make("div", {class: "find"}, find,
      this.hits), first, legend), make("div", {class: "panes"}, this.side,
      ...(this.linked ? [this.picture] : []), this.about));
  }

  hint(text) {
    const wanted = text.trim().toLowerCase(), found = [];
    for (let i = 0; wanted && i < this.count && found.length < 12; i++) {
      const words = `${this.data.names[i]} ${this.kind(i)} ${this.path(i)}`.toLowerCase();
      if (words.includes(wanted)) found.push(i);
    }
    this.hits.replaceChildren(...found.map(i => make("button", {type: "button", onclick: () => {
      this.hits.replaceChildren();
      this.show(i, true);
    }}, `${this.kind(i)} ${this.data.names[i]}`)));
    if (wanted && !found.length) this.hits.append(make("p", {}, "nothing of that name"));
  }

  kind(i) { return this.data.kinds[this.data.kind[i]]; }
  path(i) { return this.data.paths[this.data.path[i]]; }
  look(i) { return TONES[this.data.tone[i]] || "scale"; }
  shade(i) { return `--heat:${this.data.heat[i]}%`; }

  show(i, again, path) {
    this.here = i;
    const inside = path === undefined ? null : path;
    if (this.linked && (again || !this.shown.has(i))) this.draw(i, inside);
    for (const node of this.picture.querySelectorAll(".node")) {
      node.classList.toggle("here", Number(node.dataset.item) === i);
    }
    for (const edge of this.picture.querySelectorAll(".edge")) {
      edge.classList.toggle("here", edge.dataset.ends.split(" ").includes(String(i)));
    }
    this.reveal(path ?? this.path(i));
    this.tell(i);
  }

  // The graph -----------------------------------------------------------------------------------

  near(center, inside) {
    const found = new Set([center]), waiting = [center];
    const prefix = inside === null || inside === "" ? null : inside;
    const belongs = i => prefix === null || this.path(i) === prefix
      || this.path(i).startsWith(`${prefix}.`);
    for (let at = 0; at < waiting.length && found.size < MOST; at++) {
      const i = waiting[at];
      for (const j of [...this.reads[i].slice(0, ACROSS), ...this.users[i].slice(0, ACROSS)]) {
        if (found.size < MOST && !found.has(j) && belongs(j)) {
          found.add(j);
          waiting.push(j);
        }
      }
    }
    return [...found].sort((a, b) => a - b);
  }

  layers(items) {
    const known = new Set(items), level = new Map();
    for (const i of items) {
      const above = this.reads[i].filter(j => known.has(j)).map(j => level.get(j) + 1);
      level.set(i, Math.max(0, ...above));
    }
    // What nothing above holds stands right over its first reader.
    for (const i of [...items].reverse()) {
      const below = this.users[i].filter(j => known.has(j)).map(j => level.get(j) - 1);
      if (below.length && !this.reads[i].some(j => known.has(j))) {
        level.set(i, Math.max(level.get(i), Math.min(...below)));
      }
    }
    const rows = [];
    for (const i of items) (rows[level.get(i)] ??= []).push(i);
    return rows.filter(Boolean);
  }

  place(rows) {
    const x = new Map(), step = BOX[0] + GAP[0];
    rows.forEach(row => row.forEach((i, n) => x.set(i, (n - (row.length - 1) / 2) * step)));
    const mean = (list, other) => list.length
      ? list.reduce((sum, j) => sum + x.get(j), 0) / list.length : other;
    for (let sweep = 0; sweep < 6; sweep++) {
      const down = sweep % 2 === 0;
      for (const row of down ? rows : [...rows].reverse()) {
        const wanted = new Map(row.map(i => [i, mean((down ? this.reads : this.users)[i]
          .filter(j => x.has(j)), x.get(i))]));
        row.sort((a, b) => wanted.get(a) - wanted.get(b) || a - b);
        // Next to where they want to be, none over another.
        const at = row.map(i => wanted.get(i));
        for (let n = 1; n < at.length; n++) at[n] = Math.max(at[n], at[n - 1] + step);
        const drift = at.reduce((sum, v, n) => sum + v - wanted.get(row[n]), 0) / at.length;
        row.forEach((i, n) => x.set(i, at[n] - drift));
      }
    }
    return x;
  }

  draw(center, inside) {
    const items = this.near(center, inside);
    this.shown = new Set(items);
    const rows = this.layers(items), x = this.place(rows), y = new Map();
    rows.forEach((row, n) => row.forEach(i => y.set(i, n * (BOX[1] + GAP[1]))));
    const left = Math.min(...x.values()) - BOX[0] / 2 - 10;
    const right = Math.max(...x.values()) + BOX[0] / 2 + 10;
    const height = (rows.length - 1) * (BOX[1] + GAP[1]) + BOX[1];
    // Smaller where that is enough to show all of it, and can still be read.
    const wide = this.picture.clientWidth - 16 || 500;
    const scale = Math.min(1, Math.max(0.75, wide / (right - left)));
    const svg = make("svg", {role: "group", viewBox: `${left} -22 ${right - left} ${height + 44}`,
                             width: scale * (right - left), height: scale * (height + 44),
                             "aria-label": `${items.length} of ${this.count} nodes`});
    for (const i of items) {
      for (const j of this.reads[i].filter(j => this.shown.has(j))) {
        const from = [x.get(j), y.get(j) + BOX[1]], to = [x.get(i), y.get(i)];
        const bend = Math.min(40, (to[1] - from[1]) / 2);
        svg.append(make("path", {class: "edge", "data-ends": `${i} ${j}`, d: `M${from}C${from[0]} ${from[1] + bend} `
          + `${to[0]} ${to[1] - bend} ${to}`}));
      }
    }
    for (const i of items) svg.append(this.node(i, x.get(i), y.get(i)));
    this.picture.replaceChildren(svg);
    for (const text of svg.querySelectorAll(".kind, .label")) {
      if (text.getComputedTextLength() > BOX[0] - 10) {
        text.setAttribute("textLength", BOX[0] - 10);
        text.setAttribute("lengthAdjust", "spacingAndGlyphs");
      }
    }
    this.picture.scrollTop = scale * (y.get(center) + 40) - this.picture.clientHeight / 2;
    this.picture.scrollLeft = scale * (x.get(center) - left) - this.picture.clientWidth / 2;
  }

  node(i, x, y) {
    const hidden = list => list.filter(j => !this.shown.has(j)).length;
    const name = this.data.names[i], kind = this.kind(i), bad = this.look(i) === "bad";
    const cut = (text, most) => text.length <= most ? text
      : `${text.slice(0, most - 12)}\u2026${text.slice(-11)}`;
    const open = () => this.show(i, false);
    const group = make("g", {class: `node ${this.look(i)}`, role: "button", tabindex: 0,
      "data-item": i, style: this.shade(i), transform: `translate(${x - BOX[0] / 2} ${y})`,
      "aria-label": `${kind} ${name}`, onclick: open, onkeydown: event => {
        if (event.key === "Enter" || event.key === " ") { event.preventDefault(); open(); }
      }},
      make("title", {}, `${kind} ${name}\n${this.path(i) || "the model itself"}`),
      make("rect", {width: BOX[0], height: BOX[1], rx: 6}),
      make("text", {x: BOX[0] / 2, y: 16, class: "kind"}, `${bad ? "\u2717 " : ""}${cut(kind, 18)}`),
      make("text", {x: BOX[0] / 2, y: 30, class: "label"}, cut(name, 20)));
    for (const [count, at] of [[hidden(this.reads[i]), -6], [hidden(this.users[i]), BOX[1] + 13]]) {
      if (!count) continue;
      group.append(make("text", {x: BOX[0] / 2, y: at, class: "more", onclick: event => {
        event.stopPropagation();
        this.show(i, true);
      }}, `+${count}`));
    }
    return group;
  }

  // What is known -------------------------------------------------------------------------------

  tell(i) {
    const facts = make("dl", {}, ...this.data.facts[i].map(([label, text]) =>
      make("div", {}, make("dt", {}, label), make("dd", {}, ...breakable(text)))));
    const parts = [make("h3", {class: this.look(i) === "bad" ? "bad" : ""},
      ...breakable(`${this.kind(i)} ${this.data.names[i]}`)), facts];
    if (this.data.sides[i].length) {
      const head = make("tr", {}, make("th"), ...this.data.heads.map(h => make("th", {}, h)));
      parts.push(make("table", {}, make("thead", {}, head), make("tbody", {},
        ...this.data.sides[i].map(row => make("tr", {}, make("th", {}, row[0]),
          make("td", {}, row[1]), make("td", {class: row[1] === row[2] ? "" : "other"}, row[2])
        )))));
    }
    if (this.data.spread[i]) parts.push(this.histogram(this.data.spread[i]));
    for (const [words, list] of [["reads", this.reads[i]], ["read by", this.users[i]]]) {
      if (!list.length) continue;
      parts.push(make("p", {class: "links"}, `${words} `, ...list.slice(0, 12).map(j =>
        make("button", {type: "button", onclick: () => this.show(j, false)},
          `${this.kind(j)} ${this.data.names[j]}`)),
        ...(list.length > 12 ? [` and ${list.length - 12} more`] : [])));
    }
    this.about.replaceChildren(...parts);
  }

  histogram([low, high, first, second]) {
    const tall = 84, wide = 260, same = second === "=";
    const heights = text => [...text].map(c => parseInt(c, 36) / 35 * tall);
    const one = heights(first), other = same ? one : heights(second);
    const step = wide / one.length;
    const svg = make("svg", {class: "spread", role: "img", viewBox: `0 0 ${wide} ${tall + 30}`,
      "aria-label": `values from ${low} to ${high}`});
    one.forEach((h, n) => svg.append(make("rect", {class: "one", x: n * step + 0.5,
      width: Math.max(step - 1, 1), y: tall - h, height: h})));
    if (other.length) {
      let line = `M0 ${tall}`;
      other.forEach((h, n) => { line += `V${tall - h}H${(n + 1) * step}`; });
      svg.append(make("path", {class: "two", d: `${line}V${tall}`}));
    }
    const show = v => Math.abs(v) >= 1e4 || (v && Math.abs(v) < 1e-3) ? v.toExponential(2)
      : String(v);
    svg.append(make("path", {class: "base", d: `M0 ${tall}H${wide}`}),
      make("text", {x: 0, y: tall + 14}, show(low)),
      make("text", {x: wide, y: tall + 14, "text-anchor": "end"}, show(high)));
    const key = make("p", {class: "key"}, make("span", {class: "one"}, this.data.heads[0]),
      ...(other.length ? [make("span", {class: "two"}, this.data.heads[1]
        + (same ? " (the same)" : ""))] : []));
    return make("div", {}, svg, key);
  }
}

for (const root of document.querySelectorAll(".look")) {
  const text = root.querySelector("script.items").textContent;
  unpack(text).then(data => { root.explorer = new Explorer(root, data); root.dataset.ready = "1"; },
    () => { root.textContent = "This browser cannot unpack the graph; the tables hold the same."; });
}
