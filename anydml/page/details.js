// What is said of a node, finding nodes, opening and closing, and how the page begins.

const model = JSON.parse($("data").textContent);
itemize(model.graph, []);
const root = new GraphView(model.graph, null, world);
let chosen = null;

// Open or close Ifs and lay out anew; `fixed` stays where it is in the window.
function rearrange(change, fixed) {
  const before = fixed && boxOf(fixed);
  change();
  given = 0;
  root.place();
  if (chosen) mark(chosen, true);  // its lines are drawn anew
  Object.assign(world.style, { width: root.element.style.width, height: root.element.style.height });
  $("note").hidden = ![...views.values()].some(n => n.home.plain);
  if (!fixed) return;
  const after = boxOf(fixed);
  move(before.x - after.x, before.top - after.top);
}

function toggle(node, open) {
  rearrange(() => node.show(open), node.button);
  if (open) frame(node.element);
}

function mark(node, on) {
  node.element.classList.toggle("chosen", on);
  for (const line of node.lines) line.path?.classList.toggle("on", on);
}

function choose(node) {
  if (chosen) mark(chosen, false);
  chosen = node;
  document.body.classList.toggle("telling", node !== null);
  const side = $("details");
  side.replaceChildren();
  if (node) {
    mark(node, true);
    tell(node.data, side);
  } else {
    make("h2", "", "Click a node", side);
    make("p", "", "for its inputs, outputs and attributes; an If or a loop opens where it stands.", side);
    make("p", "", "Drag or scroll with two fingers to move, turn the wheel to zoom. Keys: Tab and Enter go through nodes, "
      + "arrows move, + − 0 zoom and fit, / searches, Escape closes.", side);
  }
}

function tell(item, side) {
  make("h2", "", item.op, side);
  make("code", "", [item.way, item.name].filter(Boolean).join(" / "), side);
  const list = (title, rows) => {
    if (!rows.length) return;
    make("h3", "", title, side);
    for (const [name, text] of rows) {
      const row = make("div", "row", undefined, side), [maker, around] = makers.get(name) ?? [];
      if (maker && maker !== item) {
        const link = make("button", "link", name, row);
        link.title = `made by ${maker.end ? "the outside" : maker.op}: show it`;
        link.addEventListener("click", () => show(maker, around));
      } else make("code", "", name, row);
      if (text) { row.append(" "); make("code", "type", text, row); }
    }
  };
  const words = (title, text) => { if (text) { make("h3", "", title, side); make("code", "", text, side); } };
  words("condition", item.condition);
  words("what flatten would do", item.flatten);
  words("type", item.type);
  if (!item.end) list("inputs", item.inputs);
  else if (item.op === "output" || makers.get(item.name)[0] !== item) list("from", [[item.name, ""]]);
  if (!item.end) list("outputs", item.outputs);
  if (Object.keys(item.attributes).length) make("h3", "", "attributes", side);
  for (const [name, text] of Object.entries(item.attributes)) {
    const row = make("div", "row", undefined, side);
    make("code", "", name, row);
    row.append(" ");
    make("code", "type", text, row);
  }
  for (const [kind, graph] of Object.entries(item.branches)) {
    const given = graph.inputs.filter(([name]) => !captured(name, graph));
    list(`${kind} is given`, given);
    list(`${kind} uses from outside`, graph.inputs.filter(([name]) => captured(name, graph)));
    list(`${kind} returns`, graph.outputs);
  }
}

const captured = (name, graph) => !graph.items.includes(makers.get(name)?.[0]);

// Open what is around an item, and bring it to the middle.
function show(item, around) {
  rearrange(() => around.forEach(outer => views.get(outer).show(true)));
  const node = views.get(item);
  choose(node);
  reveal(node.button);
  return node;
}

// ---- search

let hits = [], at = -1;

function search(text) {
  hits = [];
  at = -1;
  const wanted = text.trim().toLowerCase();
  const visit = (graph, around) => {
    for (const item of graph.items) {
      const says = [item.op, item.name, item.type ?? "", ...item.outputs.flat()].join("\n").toLowerCase();
      if (wanted && says.includes(wanted)) hits.push([item, around]);
      for (const inner of Object.values(item.branches)) visit(inner, [...around, item]);
    }
  };
  visit(model.graph, []);
  step(1);
}

function step(by) {
  document.querySelectorAll(".hit").forEach(e => e.classList.remove("hit"));
  $("found").textContent = hits.length || !$("search").value.trim() ? "" : "nothing found";
  if (!hits.length) return;
  at = (at + by + hits.length) % hits.length;
  show(...hits[at]).element.classList.add("hit");
  $("found").textContent = `${at + 1} of ${hits.length}`;
}

let waiting = 0;
$("search").addEventListener("input", e => {
  clearTimeout(waiting);
  waiting = setTimeout(() => search(e.target.value), 150);
});
$("search").addEventListener("keydown", e => {
  if (e.key === "Enter") step(e.shiftKey ? -1 : 1);
  if (e.key !== "Escape") return;
  e.target.value = "";
  search("");
  main.focus();
});

// ---- the other buttons, and the beginning

function openAll(open) {
  rearrange(() => showAll(root, open));
  if (chosen && !chosen.element.offsetParent) choose(null);
  begin(root);
}
$("all").addEventListener("click", () => openAll(true));
$("none").addEventListener("click", () => openAll(false));
$("all").hidden = $("none").hidden = !model.graph.nodes.some(n => Object.keys(n.branches).length);

function theme(dark) {
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  $("theme").textContent = dark ? "Light" : "Dark";
}
$("theme").addEventListener("click", () => theme(document.documentElement.dataset.theme !== "dark"));
theme(matchMedia("(prefers-color-scheme: dark)").matches);

$("title").textContent = model.title;
$("facts").textContent = model.facts;
rearrange(() => {});
choose(null);
begin(root);
