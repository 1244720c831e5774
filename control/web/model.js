// Data of this tab: lists that are read once and then updated by events. An older revision never replaces a newer
// record, in whatever order responses arrive.

const LIVE = new Set(["blocked", "pending", "held", "starting", "running", "checkpointing", "stopping", "suspended"]);
const HOLDING = new Set(["starting", "running", "checkpointing", "stopping"]);

export const model = {
  revision: 0,
  nodes: new Map(),
  projects: new Map(),
  allocations: new Map(),
  status: null,
  groups: { groups: [], unknown: "" },
  drift: { drifted: [], no_majority: [], unknown: [], without_reference: "", pending: "" },
};

export function reset() {
  model.nodes.clear();
  model.projects.clear();
  model.allocations.clear();
}

function newer(map, key, record) {
  const old = map.get(key);
  if (!old || record.revision >= old.revision) map.set(key, record);
}

export const put = {
  node: (record) => newer(model.nodes, record.name, record),
  project: (record) => newer(model.projects, record.path, record),
  allocation(record) {
    if (!LIVE.has(record.state)) model.allocations.delete(record.id);
    else newer(model.allocations, record.id, record);
  },
};

// Applies an event, and returns the parts of the page to redraw.
export function apply(name, data) {
  const dirty = new Set();
  if (name === "changes") {
    model.revision = data.revision;
    for (const change of data.changes) {
      if (change.kind === "node") { put.node(change.record); dirty.add("nodes"); }
      if (change.kind === "allocation") { put.allocation(change.record); dirty.add("queue"); }
      if (change.kind === "project") { put.project(change.record); dirty.add("tree"); }
      if (change.kind === "project_deleted") { model.projects.delete(change.path); dirty.add("tree"); }
    }
  } else if (name === "observed") {
    for (const record of data.nodes) { put.node(record); dirty.add("nodes"); dirty.add("conformance"); }
    for (const wait of data.waiting) {
      const record = model.allocations.get(wait.id);
      if (record) { record.reason = wait.reason; dirty.add("queue"); }
    }
  }
  return dirty;
}

export const holding = (allocation) => HOLDING.has(allocation.state);
