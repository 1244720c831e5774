// Panels: cluster summary, drift, projects and queue.

import { model, holding } from "./model.js";
import { byId, el, age, inOrder, jobName, setText } from "./dom.js";
import { driftRows } from "./nodes.js";

// Maximum number of queue rows; `lattice status` lists longer queues.
const ROWS = 150;
// Maximum number of nodes named in one cell.
const NAMED = 4;

export function drawNumbers() {
  const s = model.status;
  if (!s) return;
  setText(byId("cluster"), s.cluster);
  // Nodes and running allocations are counted from the data of this tab, so that numbers and tiles agree.
  const nodes = [...model.nodes.values()];
  const count = (wanted) => nodes.filter(wanted).length;
  const states = s.allocations_by_state;
  const running = [...model.allocations.values()].filter(holding).length;
  const gone = count((n) => n.liveness === "suspect" || n.liveness === "unreachable");
  const drifted = count((n) => n.drifted_keys > 0);
  // For the other nodes it is unknown, or not known yet, whether they drift.
  const judged = count((n) => (n.drifted_keys ?? null) !== null);
  const rows = [
    ["nodes", nodes.length, ""], ["alive", count((n) => n.liveness === "alive"), ""],
    ["held", count((n) => n.holder), ""], ["drifted", judged > 0 ? drifted : "?", drifted > 0 ? "warn" : ""],
    ["cells", Object.keys(s.cells).length, ""],
    ["running", running, ""], ["pending", states.pending ?? 0, ""],
  ];
  if (gone > 0) rows.splice(2, 0, ["not answering", gone, "bad"]);
  byId("numbers").replaceChildren(...rows.map(([name, value, kind]) =>
    el("div", { class: kind }, el("dt", {}, name), el("dd", {}, `${value}`))));
  const ended = ["completed", "failed", "cancelled"].filter((state) => states[state] > 0);
  setText(byId("ended"), ended.map((state) => `${states[state]} ${state}`).join(" · "));
}

// Describes the nodes and keys without a complete comparison.
function notJudged({ pending, without_reference: alone, no_majority: split }) {
  const words = [];
  if (pending) words.push(`Comparison pending or not possible: ${pending}.`);
  if (alone) words.push(`No reference (no baseline; cohort unknown or smaller than four): ${alone}.`);
  if (split.length > 0) words.push(`No majority for ${split.length === 1 ? split[0].key : `${split.length} keys`}.`);
  return words;
}

export function drawDrift() {
  const { drifted, unknown } = model.drift;
  const rows = driftRows(drifted);
  const nodes = new Set(unknown.map((u) => u.node)).size;
  const words = notJudged(model.drift);
  if (rows.length === 0) words.unshift(nodes > 0 || words.length > 0 || model.nodes.size === 0 ? "No known drift." : "Every node conforms to its baseline, or without one to the majority of its cohort.");
  if (words.length > 0) {
    rows.push(el("tr", {}, el("td", { class: "none", colspan: 5 }, words.join(" "))));
  }
  byId("drift-rows").replaceChildren(...rows);
  setText(byId("drift-note"), nodes > 0 ? `${nodes} ${nodes === 1 ? "node has" : "nodes have"} unknown classes` : "");
}

function bar(used, own, limit) {
  if (limit === null || limit === undefined) return el("div", { class: "bar", "aria-hidden": "true" });
  if (limit === 0) return el("div", { class: "bar closed", "aria-hidden": "true" });
  const share = (n) => `${Math.min(100, (100 * n) / limit)}%`;
  const kind = used > limit ? "bar over" : used === limit ? "bar full" : "bar";
  const below = el("span", { class: "below" });
  const mine = el("span", { class: "own" });
  mine.style.width = share(own);
  below.style.width = share(used - own);
  return el("div", { class: kind, "aria-hidden": "true" }, mine, below);
}

export function drawTree() {
  const rows = [...model.projects.values()].sort((a, b) => byPath(a.path, b.path)).map((p) => {
    const parts = p.path.split("/");
    const limit = p.limits.max_nodes;
    const words = limit === null || limit === undefined ? "no limit" : limit === 0 ? "closed" : `${limit}`;
    const title = `${p.path}: ${p.total.nodes} nodes held (${p.own.nodes} by the project itself), limit ${words}`;
    return el("li", { title, "--depth": parts.length - 1 },
      el("span", { class: "path" }, el("b", {}, parts.at(-1))),
      bar(p.total.nodes, p.own.nodes, limit),
      el("span", { class: "count" }, `${p.total.nodes}`, el("small", {}, ` / ${words}`)));
  });
  if (rows.length === 0) rows.push(el("li", { class: "none" }, "No project yet."));
  byId("tree").replaceChildren(...rows);
}

function byPath(a, b) {
  const [x, y] = [a.split("/"), b.split("/")];
  for (let i = 0; i < Math.min(x.length, y.length); i += 1) {
    const order = inOrder(x[i], y[i]);
    if (order !== 0) return order;
  }
  return x.length - y.length;
}

const RANK = { running: 0, checkpointing: 0, stopping: 0, starting: 0, pending: 1, held: 2, blocked: 2, suspended: 2 };

// Nodes of an allocation that do not answer or are faulty, from the present data of the nodes.
function troubled(allocation) {
  const words = [];
  for (const status of ["unreachable", "suspect", "faulty"]) {
    const names = [...model.nodes.values()]
      .filter((node) => node.status === status && node.holder?.allocation === allocation.id)
      .map((node) => node.name).sort(inOrder);
    if (names.length > 0) words.push(`${names.slice(0, NAMED).join(", ")}${names.length > NAMED ? ` and ${names.length - NAMED} more` : ""} ${status}`);
  }
  return words.join("; ");
}

export function drawQueue() {
  const all = [...model.allocations.values()].sort((a, b) => RANK[a.state] - RANK[b.state] || a.id - b.id);
  const shown = all.slice(0, ROWS);
  const now = Date.now();
  const rows = shown.map((a) => {
    const where = holding(a) ? el("span", { class: "mono" }, a.nodelist) : (a.reason ?? "");
    const trouble = holding(a) ? troubled(a) : "";
    return el("tr", {},
      el("td", { class: "tight" }, el("span", { class: `pill ${a.state}` }, a.state)),
      el("td", { class: "tight" }, `${jobName(a.id, a.element)} `, el("span", { class: "who" }, [a.name, a.user].filter(Boolean).join(", "))),
      el("td", {}, a.project), el("td", { class: "num" }, `${a.nodes}`),
      el("td", {}, where, ...(trouble ? [" ", el("span", { class: "bad" }, trouble)] : [])), el("td", { class: "num" }, age(a.state_since, now)));
  });
  if (rows.length === 0) rows.push(el("tr", {}, el("td", { class: "none", colspan: 6 }, "No running or waiting allocation.")));
  byId("queue-rows").replaceChildren(...rows);
  const waiting = model.status?.allocations_by_state.pending ?? 0;
  const listed = shown.filter((a) => a.state === "pending").length;
  setText(byId("queue-more"), waiting > listed && all.length > ROWS ? `${waiting - listed} more waiting; lattice status lists them` : "");
}
