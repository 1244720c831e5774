// Node view: one tile per node, sorted by topology group and coloured by conformance group.

import { model } from "./model.js";
import { byId, el, inOrder, jobName, setText, age, bytes } from "./dom.js";

const HUES = [206, 32, 150, 282, 348, 62, 182, 246, 100, 318];
const NO_GROUP = "group unknown";

const tiles = new Map();
// Colour index of each digest. It stays the same until the scope changes, so that colours do not jump.
const places = new Map();
let scope = "all";

export function setScope(value) {
  scope = value;
  places.clear();
}

function digestOf(node) {
  return scope === "all" ? node.fingerprint : node.classes[scope]?.digest;
}

function look(digest) {
  if (!digest) return { classes: "unknown", hue: null, letter: "?" };
  if (!places.has(digest)) places.set(digest, places.size);
  const place = places.get(digest);
  const turn = Math.floor(place / HUES.length) % 3;
  const letter = place < 26 ? String.fromCharCode(65 + place) : `${place + 1}`;
  return { classes: ["", "second", "third"][turn], hue: HUES[place % HUES.length], letter };
}

export function drawLegend() {
  const items = [];
  for (const group of model.groups.groups) {
    const { classes, hue, letter } = look(group.digest);
    items.push(el("li", { title: `${group.nodes}\n${group.digest}` },
      el("span", { class: `swatch ${classes}`, "--h": hue }, letter),
      `${group.count} ${group.count === 1 ? "node" : "nodes"}`,
      el("span", { class: "mono who" }, group.digest.slice(0, 8))));
  }
  if (model.groups.unknown) {
    items.push(el("li", { title: model.groups.unknown },
      el("span", { class: "swatch unknown" }, "?"), "unknown: equal to no other node"));
  }
  items.push(
    el("li", { class: "sign" }, el("span", { class: "mark drifted" }, "≠"), "drifted"),
    el("li", { class: "sign" }, el("span", { class: "mark held" }, "#"), "held by allocation"));
  const nodes = [...model.nodes.values()];
  const signs = [["✕", "unreachable"], ["~", "suspect"], ["!", "faulty, degraded or unknown"], ["⏸", "out of service"]];
  for (const [sign, words] of signs) {
    if (nodes.some((node) => stateSign(node) === sign)) {
      items.push(el("li", { class: "sign" }, el("b", {}, sign), words));
    }
  }
  byId("legend").replaceChildren(...items);
}

function newTile(name) {
  const tile = el("button", { type: "button", class: "tile", tabindex: -1, "data-node": name },
    el("span", { class: "name" }, el("bdi", {}, name)), el("span", { class: "letter" }),
    el("span", { class: "job" }), el("span", { class: "state" }));
  return tile;
}

const SIGNS = {
  unreachable: "✕", suspect: "~", faulty: "!", unknown: "!", degraded: "!", releasing: "", allocated: "", claimed: "", ready: "",
};

// Sign of the node's combined status, which is the worst of its parts; the title of the tile names the status. Drift is
// not part of the status: its sign appears only where the status has none, and the tile shows it by its border too.
function stateSign(node) {
  const sign = SIGNS[node.status] ?? "⏸";
  if (sign !== "") return sign;
  return node.drifted_keys > 0 ? "≠" : "";
}

function drawTile(tile, node) {
  const { classes, hue, letter } = look(digestOf(node));
  const drifted = node.drifted_keys > 0;
  const odd = ["suspect", "unreachable"].includes(node.liveness) ? node.liveness : "";
  tile.className = ["tile", classes, drifted ? "drifted" : "", odd].filter(Boolean).join(" ");
  if (hue === null) tile.style.removeProperty("--h");
  else tile.style.setProperty("--h", hue);
  const [, letterBox, job, state] = tile.children;
  setText(letterBox, letter);
  setText(job, node.holder ? `#${jobName(node.holder.allocation, node.holder.element)}` : "");
  setText(state, stateSign(node));
  const words = [node.name, letter === "?" ? "conformance unknown" : `conformance group ${letter}`,
    node.status];
  if (drifted) words.push(`drifted in ${node.drifted_keys} ${node.drifted_keys === 1 ? "key" : "keys"}`);
  if (node.holder) words.push(`held by allocation ${jobName(node.holder.allocation, node.holder.element)}`);
  tile.title = words.join(", ");
  tile.setAttribute("aria-label", tile.title);
}

export function drawNodes() {
  const groups = new Map();
  for (const node of model.nodes.values()) {
    const group = node.group ?? NO_GROUP;
    if (!groups.has(group)) groups.set(group, []);
    groups.get(group).push(node);
  }
  const box = byId("groups");
  const count = model.nodes.size;
  box.className = count > 320 ? "small" : count > 80 ? "medium" : "";
  const sections = [];
  for (const name of [...groups.keys()].sort(groupOrder)) {
    const members = groups.get(name).sort((a, b) => inOrder(a.name, b.name));
    sections.push(drawGroup(box, name, members));
  }
  if (sections.length === 0) sections.push(el("p", { class: "none" }, "No node is registered or gossips yet."));
  const same = sections.length === box.children.length && sections.every((s, i) => s === box.children[i]);
  if (!same) box.replaceChildren(...sections);
  for (const [name, tile] of tiles) {
    if (!model.nodes.has(name)) { tile.remove(); tiles.delete(name); }
  }
  keepOneTabStop();
}

const groupOrder = (a, b) => (a === NO_GROUP) - (b === NO_GROUP) || inOrder(a, b);

function drawGroup(box, name, members) {
  let section = [...box.children].find((child) => child.dataset.group === name);
  if (!section) {
    section = el("div", { class: "group", "data-group": name, role: "group", "aria-label": name },
      el("h3", {}, name, el("small")), el("div", { class: "tiles" }));
  }
  const free = members.filter((n) => !n.holder && n.lifecycle === "ready" && n.drain.length === 0).length;
  setText(section.querySelector("small"), `${members.length} nodes, ${free} free`);
  const row = section.querySelector(".tiles");
  const wanted = members.map((node) => {
    if (!tiles.has(node.name)) tiles.set(node.name, newTile(node.name));
    const tile = tiles.get(node.name);
    drawTile(tile, node);
    return tile;
  });
  const same = wanted.length === row.children.length && wanted.every((t, i) => t === row.children[i]);
  if (!same) row.replaceChildren(...wanted);
  return section;
}

// Keeps a single tab stop among all tiles; the arrow keys move between tiles.
function keepOneTabStop() {
  const all = [...document.querySelectorAll("#groups .tile")];
  if (all.length > 0 && !all.some((tile) => tile.tabIndex === 0)) all[0].tabIndex = 0;
}

function move(from, key) {
  const all = [...document.querySelectorAll("#groups .tile")];
  const at = all.indexOf(from);
  if (key === "Home") return all[0];
  if (key === "End") return all.at(-1);
  if (key === "ArrowRight") return all[at + 1];
  if (key === "ArrowLeft") return all[at - 1];
  const here = from.getBoundingClientRect();
  const down = key === "ArrowDown";
  const rows = all.map((tile) => ({ tile, box: tile.getBoundingClientRect() }))
    .filter(({ box }) => (down ? box.top > here.bottom - 2 : box.bottom < here.top + 2));
  const far = ({ box }) => Math.abs(box.top - here.top) * 1e4 + Math.abs(box.left - here.left);
  return rows.sort((a, b) => far(a) - far(b))[0]?.tile;
}

export function listen() {
  const box = byId("groups");
  box.addEventListener("keydown", (event) => {
    const tile = event.target.closest(".tile");
    if (!tile || !["ArrowRight", "ArrowLeft", "ArrowUp", "ArrowDown", "Home", "End"].includes(event.key)) return;
    event.preventDefault();
    const next = move(tile, event.key);
    if (!next) return;
    tile.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  });
  box.addEventListener("click", (event) => {
    const tile = event.target.closest(".tile");
    if (tile) show(tile.dataset.node);
  });
  byId("node-close").addEventListener("click", () => byId("node").close());
}

function resources(node) {
  const f = node.resources;
  const rows = [
    ["Status", node.status],
    ["Topology group", node.group ?? "unknown"],
    ["Gossip cell", node.cell ?? "unknown"],
    ["Liveness", node.liveness + (node.last_seen ? `, last answer ${age(node.last_seen)} ago` : "") + (node.liveness_reason ? `: ${node.liveness_reason}` : "")],
    ["Health", [node.health.verdict, ...node.health.reasons].join(", ")],
    ["Lifecycle", node.lifecycle],
    ["Held by", node.holder ? `allocation ${jobName(node.holder.allocation, node.holder.element)}, attempt ${node.holder.attempt}` : "no allocation"],
    ["Model", [f.vendor, f.product].filter(Boolean).join(" ") || "unknown"],
    ["GPUs", f.gpu_count === undefined ? "unknown" : f.gpu_count === 0 ? "none" : `${f.gpu_count} × ${f.gpu_model ?? "unknown model"}`],
    ["Memory", f.memory_bytes === undefined ? "unknown" : bytes(f.memory_bytes)],
    ["Fingerprint", node.fingerprint ?? "unknown: a class is incomplete"],
  ];
  for (const d of node.drain) rows.push(["Drained by", `${d.owner}: ${d.reason}`]);
  return el("dl", {}, ...rows.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));
}

// Shortens a long value to the words that are not in the other value; the title has the whole value.
function apart(text, other) {
  const words = text.split(" ");
  if (words.length < 4) return text;
  const rest = new Set(other.split(" "));
  const kept = words.map((word) => (rest.has(word) ? "…" : word));
  const short = kept.filter((word, n) => word !== "…" || kept[n - 1] !== "…").join(" ");
  return short.replace(/^… | …$/g, "").replace(/^…$/, "not present");
}

// Permits line breaks after the separators in long words.
function breakable(text) {
  return text.split(/(?<=[._=/,:-])/).flatMap((part) => [part, el("wbr")]);
}

export function driftRows(drifts) {
  return drifts.map((d) => el("tr", {},
    el("td", { class: "tight" }, d.node), el("td", { class: "tight mono" }, d.key),
    el("td", { title: d.expected }, el("del", {}, ...breakable(apart(d.expected, d.found)))),
    el("td", { title: d.found }, el("ins", {}, ...breakable(apart(d.found, d.expected)))),
    el("td", { title: judgedBy(d) }, ...breakable(d.by))));
}

function judgedBy(d) {
  return d.baseline ? `policy ${d.policy}` : `${d.majority_nodes} of ${d.cohort_nodes} nodes in the cohort have the expected value`;
}

function show(name) {
  const node = model.nodes.get(name);
  if (!node) return;
  byId("node-title").textContent = name;
  const body = [resources(node)];
  const drifts = model.drift.drifted.filter((d) => d.node === name);
  if (drifts.length > 0) {
    body.push(el("h3", {}, "Drift"),
      el("table", {}, el("thead", {}, el("tr", {}, ...["Node", "Key", "Expected", "Found", "Reference"].map((t) => el("th", { scope: "col" }, t)))),
        el("tbody", {}, ...driftRows(drifts))));
  }
  const classes = Object.entries(node.classes).map(([name, c]) => [el("dt", {}, name), el("dd", { class: "mono" }, c.digest ?? c.state)]);
  body.push(el("h3", {}, "Class digests"), el("dl", {}, ...classes.flat()));
  byId("node-body").replaceChildren(...body);
  byId("node").showModal();
}
