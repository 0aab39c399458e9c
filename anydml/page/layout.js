// Where the nodes of one graph lie, and which ways its lines go.
//
// A node is {width, height} and gets x, y: its centre, and `row`: top and bottom of the row that it is in. A line is {from, to, width}, indices of nodes, from < to, and the
// width of its label; it gets `ways`, places [x, top, bottom] that it goes straight down through, `start`, where it
// does not begin at its node, and `label`, the centre of its label.

const GAP = { between: 22, passing: 10, rows: 56, label: 14 };
// What dagre is given at most, for one graph and between two pauses: nodes, and ranks that lines span. Its time grows
// faster than that, and its calls nest.
const DAGRE = { graph: 1200, together: 4000 };
let given = 0;

function layOut(nodes, lines) {
  const ranks = ranked(nodes, lines);
  const work = lines.reduce((sum, l) => sum + ranks[l.to] - ranks[l.from], nodes.length);
  const plain = work > DAGRE.graph || given + work > DAGRE.together;
  if (!plain) given += work;
  return { plain, ...(plain ? inRows(nodes, lines, ranks) : byDagre(nodes, lines)) };
}

// A node lies below all that it reads; what reads nothing lies above its nearest reader.
function ranked(nodes, lines) {
  const rank = nodes.map(() => 0), reads = new Set();
  for (const { from, to } of [...lines].sort((a, b) => a.to - b.to)) {
    rank[to] = Math.max(rank[to], rank[from] + 1);
    reads.add(to);
  }
  const nearest = nodes.map(() => Infinity);
  for (const { from, to } of lines) nearest[from] = Math.min(nearest[from], rank[to] - 1);
  return rank.map((r, k) => reads.has(k) || nearest[k] === Infinity ? r : nearest[k]);
}

function byDagre(nodes, lines) {
  const graph = new dagre.graphlib.Graph({ multigraph: true });
  graph.setGraph({ ranker: "tight-tree", nodesep: GAP.between, edgesep: GAP.passing, ranksep: GAP.rows });
  nodes.forEach((n, k) => graph.setNode(String(k), { width: n.width, height: n.height }));
  lines.forEach((l, k) => graph.setEdge(String(l.from), String(l.to),
    { width: l.width, height: l.width && GAP.label, labelpos: "c" }, String(k)));
  dagre.layout(graph);
  const high = new Map();  // half of the height of a rank, by its centre
  nodes.forEach((n, k) => {
    const { x, y } = graph.node(String(k));
    Object.assign(n, { x, y });
    high.set(Math.round(y), Math.max(high.get(Math.round(y)) ?? 0, n.height / 2));
  });
  for (const n of nodes) n.row = [-1, 1].map(sign => n.y + sign * high.get(Math.round(n.y)));
  lines.forEach((l, k) => {
    const { points, x, y } = graph.edge(String(l.from), String(l.to), String(k));
    l.label = [x, y];
    l.ways = points.slice(1, -1).map(p => {
      const half = high.get(Math.round(p.y)) ?? 0;
      return [p.x, p.y - half, p.y + half];
    });
  });
  return { width: graph.graph().width, height: graph.graph().height };
}

// Rows of nodes, and of lines that pass: those to all readers of one node go together as far as they can. Each cell goes
// to the mean of those that it is joined to, above and below by turns, as far as there is room.
function inRows(nodes, lines, ranks) {
  const rows = [], cells = nodes.map((n, k) => cell(ranks[k], n.width + GAP.between));
  function cell(rank, width) {
    const made = { rank, width, x: 0, above: [], below: [] };
    (rows[rank] ??= []).push(made);
    return made;
  }
  const join = (upper, lower) => { upper.below.push(lower); lower.above.push(upper); };
  const passed = lines.map(() => []), before = lines.map(() => null), readers = nodes.map(() => []);
  lines.forEach((l, k) => readers[l.from].push(k));
  readers.forEach((leaving, from) => {
    let last = cells[from], shared = null;
    for (const k of leaving.sort((a, b) => ranks[lines[a].to] - ranks[lines[b].to])) {
      before[k] = shared;
      while (last.rank < ranks[lines[k].to] - 1) {
        const next = cell(last.rank + 1, GAP.passing);
        join(last, next);
        passed[k].push(last = shared = next);
      }
      join(last, cells[lines[k].to]);
    }
  });
  const all = rows.filter(Boolean);
  all.forEach(row => spread(row, (_, k) => k));
  for (const side of ["above", "below", "above", "below", "above"]) {
    for (const row of side === "above" ? all : [...all].reverse()) {
      row.forEach(c => { c.wish = c[side].length ? c[side].reduce((sum, o) => sum + o.x, 0) / c[side].length : c.x; });
      spread(row.sort((a, b) => a.wish - b.wish), c => c.wish);
    }
  }
  return measured(nodes, lines, { all, cells, passed, before });
}

// Cells side by side in this order, each as near to where it is wished as the others let it.
function spread(row, wish) {
  const blocks = [];
  let packed = 0;
  const offsets = row.map(c => { packed += c.width; return packed - c.width / 2; });
  row.forEach((c, k) => {
    let block = { sum: wish(c, k) - offsets[k], count: 1 };
    while (blocks.length && blocks.at(-1).sum / blocks.at(-1).count >= block.sum / block.count) {
      const { sum, count } = blocks.pop();
      block = { sum: sum + block.sum, count: count + block.count };
    }
    blocks.push(block);
  });
  let k = 0;
  for (const { sum, count } of blocks) for (let end = k + count; k < end; k++) row[k].x = sum / count + offsets[k];
}

function measured(nodes, lines, { all, cells, passed, before }) {
  const once = new Set(), several = new Set();
  for (const { from } of lines) (once.has(from) ? several : once).add(from);
  let left = Infinity, right = -Infinity, y = 0;
  for (const row of all) for (const c of row) {
    left = Math.min(left, c.x - c.width / 2);
    right = Math.max(right, c.x + c.width / 2);
  }
  const height = new Map();
  nodes.forEach((n, k) => height.set(cells[k].rank, Math.max(height.get(cells[k].rank) ?? 0, n.height)));
  for (const row of all) {
    const high = height.get(row[0].rank) ?? 0;
    for (const c of row) Object.assign(c, { x: c.x - left, top: y, bottom: y + high });
    y += high + GAP.rows;
  }
  nodes.forEach((n, k) => {
    const { x, top, bottom } = cells[k];
    Object.assign(n, { x, y: (top + bottom) / 2, row: [top, bottom] });
  });
  lines.forEach((l, k) => {
    const last = passed[k].at(-1) ?? before[k] ?? cells[l.from], end = cells[l.to];
    const near = several.has(l.from) ? 0.7 : 0.3;  // lines from one node are apart at their ends, others where they begin
    l.ways = passed[k].map(c => [c.x, c.top, c.bottom]);
    l.start = before[k] && [before[k].x, before[k].bottom];
    l.label = [last.x + (end.x - last.x) * near, end.top - GAP.rows * (0.8 - near * 0.6)];
  });
  return { width: right - left, height: y - GAP.rows };
}
