// The part of the drawing that is seen: moved by dragging, scrolling and arrow keys, scaled at the pointer.

const $ = id => document.getElementById(id);
const main = $("main"), world = $("world");
const SCALES = { most: 3, readable: 0.6, comfortable: 0.9 };
const MARGIN = 24, PRINTED = 1000;  // pixels; as wide as a page in landscape
const seen = { x: 0, y: 0, scale: 1 };

function look(x, y, scale) {
  Object.assign(seen, { x, y, scale });
  world.style.transform = `translate(${x}px, ${y}px) scale(${scale})`;
  leaveOut(scale);
  $("scale").textContent = `${(scale * 100).toFixed(scale < 0.1 ? 1 : 0)} %`;
}

// Text that nobody could read is not drawn.
function leaveOut(scale) {
  main.classList.toggle("far", scale < 0.35);
  main.classList.toggle("dots", scale < 0.12);
}

const move = (right, down) => look(seen.x + right, seen.y + down, seen.scale);

// Scale; what is at this place of the window stays there.
function zoom(factor, x = main.clientWidth / 2, y = main.clientHeight / 2) {
  const scale = Math.max(Math.min(0.05, fitting()), Math.min(SCALES.most, seen.scale * factor));
  const by = scale / seen.scale;
  look(x - (x - seen.x) * by, y - (y - seen.y) * by, scale);
}

// Where an element lies: in the window, and in the drawing.
function boxOf(element) {
  const r = element.getBoundingClientRect(), base = main.getBoundingClientRect();
  const left = r.left - base.left, top = r.top - base.top;
  return { left, top, right: left + r.width, bottom: top + r.height, width: r.width, height: r.height,
    x: left + r.width / 2, y: top + r.height / 2 };
}

const fitting = (width = world.offsetWidth, height = world.offsetHeight) =>
  Math.min(1, (main.clientWidth - 2 * MARGIN) / width, (main.clientHeight - 2 * MARGIN) / height);

function fit() {
  const scale = fitting();
  look((main.clientWidth - world.offsetWidth * scale) / 2, (main.clientHeight - world.offsetHeight * scale) / 2, scale);
}

// The whole, if it can be read then; else its top, with the inputs in the middle. Anew when the window changes, until
// somebody moves.
let begun = "";
function begin(view) {
  overview(view);
  begun = JSON.stringify(seen);
  onresize = () => { if (JSON.stringify(seen) === begun) begin(view); };
}

function overview(view) {
  if (fitting() >= SCALES.readable) return fit();
  const tops = view.nodes.filter(n => n.data.op === "input"), first = tops.length ? tops : view.nodes.slice(0, 1);
  const x = first.reduce((sum, n) => sum + n.x, 0) / (first.length || 1);
  const y = Math.min(...first.map(n => n.y - n.height / 2));
  const scale = SCALES.comfortable;
  return look(main.clientWidth / 2 - x * scale, MARGIN - (y || 0) * scale, scale);
}

// Bring an element to the middle, large enough to be read.
function reveal(element) {
  if (seen.scale < SCALES.readable) zoom(SCALES.comfortable / seen.scale);
  const { x, y } = boxOf(element);
  move(main.clientWidth / 2 - x, main.clientHeight / 2 - y);
}

function isHidden(element) {
  const { left, right, top, bottom } = boxOf(element);
  return left < 0 || top < 0 || right > main.clientWidth || bottom > main.clientHeight;
}

// Bring all of an element into the window, or as much of its top as can be read.
function frame(element) {
  if (!isHidden(element)) return;
  const whole = fitting(element.offsetWidth, element.offsetHeight);
  if (whole < seen.scale) zoom(Math.max(SCALES.readable, whole) / seen.scale);
  const { x, y, top, height } = boxOf(element);
  move(main.clientWidth / 2 - x, height < main.clientHeight ? main.clientHeight / 2 - y : MARGIN - top);
}

// ---- pointers: one moves, two scale, too

const pointers = new Map();
let dragged = false;

main.addEventListener("pointerdown", e => {
  if (e.button > 1) return;
  if (!pointers.size) dragged = false;
  pointers.set(e.pointerId, [e.clientX, e.clientY]);
});
addEventListener("pointermove", e => {
  const was = pointers.get(e.pointerId);
  if (!was) return;
  if (e.pointerType === "mouse" && !e.buttons) return void pointers.delete(e.pointerId);  // let go outside the window
  const now = [e.clientX, e.clientY];
  if (!dragged && Math.hypot(now[0] - was[0], now[1] - was[1]) < 4) return;
  dragged = true;
  main.classList.add("dragged");
  const other = [...pointers].find(([id]) => id !== e.pointerId)?.[1];
  pointers.set(e.pointerId, now);
  const share = other ? 2 : 1;  // the middle of two fingers goes half as far as one of them
  move((now[0] - was[0]) / share, (now[1] - was[1]) / share);
  if (!other) return;
  const apart = p => Math.max(1, Math.hypot(p[0] - other[0], p[1] - other[1])), base = main.getBoundingClientRect();
  zoom(apart(now) / apart(was), (now[0] + other[0]) / 2 - base.left, (now[1] + other[1]) / 2 - base.top);
});
for (const end of ["pointerup", "pointercancel"]) {
  addEventListener(end, e => { pointers.delete(e.pointerId); main.classList.remove("dragged"); });
}
main.addEventListener("click", e => {
  if (dragged && e.detail) { e.stopPropagation(); e.preventDefault(); }
  else if (!e.target.closest("button")) choose(null);
  dragged = false;
}, true);

// A wheel with steps scales, as pinching does (browsers tell it as ctrl); two fingers on a pad move.
main.addEventListener("wheel", e => {
  e.preventDefault();
  const stepped = e.deltaMode !== 0 || (e.deltaX === 0 && e.wheelDeltaY !== 0 && e.wheelDeltaY % 120 === 0);
  if (e.shiftKey) return move(-(e.deltaX || e.deltaY), 0);
  if (!e.ctrlKey && !e.metaKey && !stepped) return move(-e.deltaX, -e.deltaY);
  const base = main.getBoundingClientRect(), step = stepped ? Math.sign(e.deltaY) * 0.2 : e.deltaY * 0.01;
  return zoom(Math.exp(-step), e.clientX - base.left, e.clientY - base.top);
}, { passive: false });

// ---- keys

const KEYS = {
  ArrowLeft: () => move(60, 0), ArrowRight: () => move(-60, 0), ArrowUp: () => move(0, 60), ArrowDown: () => move(0, -60),
  PageUp: () => move(0, main.clientHeight * 0.8), PageDown: () => move(0, -main.clientHeight * 0.8),
  "+": () => zoom(1.25), "=": () => zoom(1.25), "-": () => zoom(0.8), 0: fit, "/": () => $("search").focus(),
  Escape: leave,
};

// Close the If that the focus is in; else choose nothing.
function leave() {
  const inner = document.activeElement?.closest(".branches");
  const node = [...views.values()].find(n => n.open && (n.inside === inner || n.button === document.activeElement));
  if (!node) return choose(null);
  toggle(node, false);
  node.button.focus();
  return choose(node);
}

document.addEventListener("keydown", e => {
  const elsewhere = e.target.closest("input") || (e.target.closest("aside") && e.key !== "Escape");
  if (elsewhere || e.ctrlKey || e.metaKey || e.altKey || !KEYS[e.key]) return;
  e.preventDefault();
  KEYS[e.key]();
});
main.addEventListener("focusin", e => {
  if (e.target !== main && e.target.matches(":focus-visible") && isHidden(e.target)) reveal(e.target);
});
$("in").addEventListener("click", () => zoom(1.25));
$("out").addEventListener("click", () => zoom(0.8));
$("fit").addEventListener("click", fit);

// ---- paper: as wide as a page, on as many as it takes

addEventListener("beforeprint", () => {
  const scale = Math.min(1, PRINTED / world.offsetWidth);
  leaveOut(scale);
  document.documentElement.style.setProperty("--printed", scale);
});
addEventListener("afterprint", () => leaveOut(seen.scale));
