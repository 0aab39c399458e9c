// Graphs as elements: nodes are buttons, lines are paths, an If or a loop opens to its branches where it stands.

const SVG = "http://www.w3.org/2000/svg";

function make(tag, className, text, parent) {
  const e = document.createElement(tag);
  if (className) e.className = className;
  if (text !== undefined) e.textContent = text;
  if (parent) parent.append(e);
  return e;
}

function makeSvg(tag, attributes, parent) {
  const e = parent.appendChild(document.createElementNS(SVG, tag));
  for (const [name, value] of Object.entries(attributes)) e.setAttribute(name, value);
  return e;
}

// "float32[1,576]" as "f32[1,576]"
function short(type) {
  const text = type.replace(/bfloat|float|uint|int|complex/, word => word.replace(/(bf|[fuic]).*/, "$1"));
  return text.length > 20 ? `${text.slice(0, 19)}…` : text;
}

const views = new Map();  // the NodeView of what is drawn
const makers = new Map();  // who makes a value: [item, the Ifs and loops around it]

// What is drawn of a graph and of those in it: its inputs, nodes and outputs are items, all alike.
function itemize(graph, around) {
  const end = (kind, [name, type], more) =>
    ({ op: kind, name, type, end: true, reads: [], inputs: [], outputs: [], attributes: {}, branches: {}, ...more });
  graph.items = [
    ...graph.inputs.map(value => end("input", value, { outputs: [value] })),
    ...graph.nodes,
    ...graph.outputs.map(value => end("output", value, { reads: [value[0]], inputs: [value] })),
  ];
  for (const item of graph.items) {
    for (const [name] of item.outputs) if (!makers.has(name)) makers.set(name, [item, around]);
    for (const inner of Object.values(item.branches)) itemize(inner, [...around, item]);
  }
}

class GraphView {
  // `owner`: the NodeView whose branch it is
  constructor(graph, owner, parent) {
    this.graph = graph;
    this.owner = owner;
    this.element = make("div", "graph", undefined, parent);
    this.svg = makeSvg("svg", { "aria-hidden": "true" }, this.element);
    this.changed = true;
    this.nodes = graph.items.map(item => new NodeView(item, this));
    this.lines = this.joined();
  }

  joined() {
    const sources = new Map(), lines = [];
    this.nodes.forEach((node, to) => {
      for (const name of new Set(node.data.reads)) {
        const [from, type] = sources.get(name) ?? [];
        if (from === undefined) continue;  // a constant
        const text = short(type);
        const line = { from, to, name, type, text, width: text.length * 6 + 6 };
        lines.push(line);
        node.lines.push(line);
        this.nodes[from].lines.push(line);
      }
      for (const [name, type] of node.data.outputs) sources.set(name, [to, type]);
    });
    return lines;
  }

  // Lay out anew what has changed, inner graphs first.
  place() {
    if (!this.changed) return;
    this.changed = false;
    for (const node of this.nodes) if (node.open) node.branches.forEach(b => b.place());
    for (const node of this.nodes) node.measure();
    const { width, height, plain } = layOut(this.nodes, this.lines);
    this.plain = plain;
    Object.assign(this.element.style, { width: `${width}px`, height: `${height}px` });
    for (const node of this.nodes) node.moveTo(node.x - node.width / 2, node.y - node.height / 2);
    this.svg.replaceChildren();
    for (const line of this.lines) this.draw(line);
  }

  draw(line) {
    const from = this.nodes[line.from], to = this.nodes[line.to];
    const beside = (node, x) => {
      const room = Math.max(0, Math.min(node.width / 2 - 10, 60));
      return Math.max(node.x - room, Math.min(node.x + room, x));
    };
    let [x, y] = line.start ?? [beside(from, (line.ways[0] ?? [to.x])[0]), from.y + from.height / 2];
    const end = beside(to, line.ways.at(-1)?.[0] ?? x);
    let d = `M${x} ${y}`;
    if (!line.start) d += `V${y = from.row[1]}`;
    for (const [next, top, bottom] of [...line.ways, [end, to.row[0], to.y - to.height / 2]]) {
      const middle = (y + top) / 2;
      d += `C${x} ${middle} ${next} ${middle} ${next} ${top}`;
      d += `V${bottom}`;
      [x, y] = [next, bottom];
    }
    line.path = makeSvg("path", { d: `${d}m-3 -6l3 6l3 -6` }, this.svg);
    const [left, middle] = line.label;
    const text = makeSvg("text", { x: left, y: middle + 4 }, this.svg);
    text.textContent = line.text;
    makeSvg("title", {}, text).textContent = `${line.name}: ${line.type}`;
  }
}

class NodeView {
  constructor(data, home) {
    Object.assign(this, { data, home, lines: [], open: false, branches: [] });
    views.set(data, this);
    const kinds = Object.keys(data.branches);
    const kind = kinds.length ? (data.op === "If" ? "control if" : "control loop") : data.end ? "node end" : "node";
    this.element = make(kinds.length ? "div" : "button", kind, undefined, home.element);
    this.button = kinds.length ? this.head() : this.element;
    if (!kinds.length) {
      make("span", "op", data.end ? data.name.split("/").pop() : data.op, this.element);
      const below = data.end ? data.type : data.name;
      if (below) make("span", "name", `\u200e${below}\u200e`, this.element);
      this.element.title = below;
    }
    this.button.addEventListener("click", () => {
      if (kinds.length) toggle(this, !this.open);
      choose(this);
    });
  }

  head() {
    const head = make("div", "head", undefined, this.element), { data } = this;
    const button = make("button", "toggle", undefined, head);
    make("span", "mark", "▸", button);
    button.append(` ${data.op} ${data.name.split("/").pop()}`);
    button.setAttribute("aria-expanded", "false");
    if (data.condition) make("span", "condition", data.condition, head).title = data.condition;
    const fate = data.flatten?.split(":")[0];
    if (fate) make("span", `fate ${fate}`, fate, head).title = data.flatten;
    this.inside = make("div", "branches", undefined, this.element);
    this.inside.hidden = true;
    return button;
  }

  // Show the branches, or not; the graph around it is laid out by the next `place`.
  show(open) {
    if (open === this.open || !this.inside) return;
    this.open = open;
    if (open && !this.branches.length) {
      this.branches = Object.entries(this.data.branches).map(([kind, graph]) => {
        const branch = make("div", `branch ${this.data.op === "If" ? kind : "body"}`, undefined, this.inside);
        make("div", "word", `${kind}: ${graph.count} node${graph.count === 1 ? "" : "s"}`, branch);
        return new GraphView(graph, this, branch);
      });
    }
    this.inside.hidden = !open;
    this.button.querySelector(".mark").textContent = open ? "▾" : "▸";
    this.button.setAttribute("aria-expanded", String(open));
    for (let node = this; node; node = node.home.owner) {
      node.width = undefined;
      node.home.changed = true;
    }
  }

  measure() {
    if (this.width !== undefined) return;
    this.width = this.element.offsetWidth;
    this.height = this.element.offsetHeight;
  }

  moveTo(left, top) { Object.assign(this.element.style, { left: `${left}px`, top: `${top}px` }); }
}

// All Ifs and loops in a graph, outer ones first; those of branches that were never open are made.
function showAll(view, open) {
  for (const node of view.nodes) {
    if (open) node.show(true);
    for (const branch of node.branches) showAll(branch, open);
    if (!open) node.show(false);
  }
}

