// Page start-up and live updates: the page reads the lists once, and then applies events. Groups, drift and counts are
// not part of the events; the page reads them again after events, at most every SUMMARY_EVERY milliseconds.

import { all, events, get, open, Refused, setToken, takeToken, view } from "./api.js";
import { apply, model, put, reset } from "./model.js";
import { byId, duration, setText } from "./dom.js";
import * as nodes from "./nodes.js";
import * as panels from "./panels.js";

const SUMMARY_EVERY = 1500;
const SILENCE = 40000;
const PENDING_READ = 200;
// Age in seconds from which the view is reported as old. While the quorum answers, a view is younger than a second.
const STALE_VIEW = 10;
const VIEW_CHECK_EVERY = 5000;

const draw = {
  nodes() { nodes.drawNodes(); panels.drawNumbers(); },
  queue() { panels.drawQueue(); panels.drawNumbers(); },
  tree: panels.drawTree,
  conformance() { nodes.drawLegend(); panels.drawDrift(); nodes.drawNodes(); },
  numbers: panels.drawNumbers,
};
const dirty = new Set();

// Collects changes, so that each part of the page is drawn at most once per frame.
function mark(...parts) {
  if (dirty.size === 0) requestAnimationFrame(() => {
    const parts = [...dirty];
    dirty.clear();
    for (const part of parts) draw[part]();
  });
  for (const part of parts) dirty.add(part);
}

let summaryTimer = null;
let summaryAt = 0;

// Combines the reads of many events into one.
function wantSummary() {
  if (summaryTimer !== null) return;
  const wait = Math.max(150, SUMMARY_EVERY - (Date.now() - summaryAt));
  summaryTimer = setTimeout(async () => {
    summaryAt = Date.now();
    try { await readSummary(); } catch { /* If the server is unreachable, the event stream fails too. */ }
    summaryTimer = null;
  }, wait);
}

async function readSummary() {
  const scope = byId("scope").value;
  const [status, groups, drift] = await Promise.all([
    get("status"), get(`conformance/groups?class=${scope}`), get("conformance/drift"),
  ]);
  Object.assign(model, { status, groups, drift });
  const listed = [...model.allocations.values()].filter((a) => a.state === "pending").length;
  const waiting = status.allocations_by_state.pending ?? 0;
  if (listed < Math.min(waiting, PENDING_READ / 4)) await readPending();
  mark("conformance", "numbers", "queue");
}

async function readPending() {
  const page = await get(`allocations?state=pending,held,blocked&limit=${PENDING_READ}`);
  page.items.forEach(put.allocation);
}

// Nodes with an event since the last request for the node list.
let heard = new Set();

// Observed data of nodes belongs to no revision. After a lost connection, events alone therefore do not restore this
// data: another control may answer now, or a restarted one.
async function readNodesAgain() {
  const known = new Set(model.nodes.keys());
  const told = heard = new Set();
  const nodeList = await all("nodes");
  for (const record of nodeList) {
    // Events that arrived in the meantime are newer than the list.
    if (!told.has(record.name)) put.node(record);
    known.delete(record.name);
  }
  // A node that appeared during the read is not in `known`, and stays.
  for (const name of known) model.nodes.delete(name);
  await readPending();
  mark("nodes", "queue", "conformance");
  wantSummary();
}

async function readAll() {
  reset();
  // Events cover every change after this revision, even if the lists below already include some of these changes.
  const { revision } = await get("status");
  const [nodeList, projects, holding] = await Promise.all([
    all("nodes"), all("projects"), all("allocations?state=starting,running,checkpointing,stopping,suspended"),
    readPending(),
  ]);
  nodeList.forEach(put.node);
  projects.forEach(put.project);
  holding.forEach(put.allocation);
  model.revision = revision;
  await readSummary();
  mark("nodes", "tree", "queue");
}

function showLink(kind, text) {
  byId("link").className = kind;
  setText(byId("link-text"), text);
}

// Shows the age of an old view. A quiet cluster sends no events and causes no requests, so that only a request of its own
// shows whether the quorum still answers the server.
async function checkView() {
  if (byId("main").hidden) return;
  // While the view is old the answer is a refusal, with the age in its header.
  await open("/readyz").catch(() => {});
  const stale = view.age !== null && view.age >= STALE_VIEW;
  byId("stale").hidden = !stale;
  if (stale) setText(byId("stale"), `The quorum does not answer. The data on this page is ${duration(view.age)} old.`);
}

// Describes why the page receives no data.
function lostText(error) {
  if (!(error instanceof Refused && error.code === "no_view")) return "connection lost, reconnecting";
  const text = "server has no view of the cluster yet, retrying";
  return byId("main").hidden ? text : `${text}; the data on this page is from before`;
}

// Follows one connection until it breaks, is silent for too long, or the server reports that this client fell behind
// (`compacted`). Returns true in the last case: the lists must be read again.
async function follow(onOpen) {
  const stop = new AbortController();
  let quiet;
  const alive = () => {
    clearTimeout(quiet);
    quiet = setTimeout(() => stop.abort(), SILENCE);
  };
  alive();
  let startOver = false;
  try {
    await events(model.revision, stop.signal, (name, data) => {
      alive();
      if (name === "open") onOpen();
      showLink("live", `live, revision ${model.revision}`);
      if (data === null) return;
      if (name === "compacted") { startOver = true; stop.abort(); return; }
      if (name === "observed") data.nodes.forEach((node) => heard.add(node.name));
      mark(...apply(name, data));
      wantSummary();
    });
  } catch (error) {
    if (!startOver) throw error;
  } finally {
    clearTimeout(quiet);
  }
  return startOver;
}

async function run() {
  byId("login").hidden = true;
  let pause = 250;
  let read = false;
  for (;;) {
    try {
      const again = read;
      if (!read) await readAll();
      read = true;
      byId("main").hidden = false;
      const opened = () => {
        pause = 250;
        // If the server fails again, the stream fails too, and the next connection reads the nodes again.
        if (again) readNodesAgain().catch(() => {});
      };
      if (await follow(opened)) read = false;
    } catch (error) {
      if (error instanceof Refused && (error.status === 401 || error.status === 403)) return login(error.message);
      showLink("lost", lostText(error));
    }
    await new Promise((resolve) => setTimeout(resolve, pause));
    pause = Math.min(pause * 2, 5000);
  }
}

function login(reason = "") {
  setToken(null);
  byId("main").hidden = true;
  byId("login").hidden = false;
  setText(byId("login-error"), reason);
  showLink("", "not logged in");
  byId("token").focus();
}

byId("login").addEventListener("submit", (event) => {
  event.preventDefault();
  setToken(byId("token").value.trim());
  byId("token").value = "";
  run();
});
byId("scope").addEventListener("change", () => {
  nodes.setScope(byId("scope").value);
  mark("nodes");
  summaryAt = 0;
  wantSummary();
});
nodes.listen();
// Ages increase without events.
setInterval(() => mark("queue"), 5000);
setInterval(checkView, VIEW_CHECK_EVERY);
if (takeToken()) run();
else login();
