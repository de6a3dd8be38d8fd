// Leads from view to view, each with an address, and remembers the namespace that a person chose.

const NAMESPACE = "fleetctl-namespace";
export const SHOWS = "fleetctl-shows"; // sent to the window when another view is wanted

export function namespace() {
  return localStorage.getItem(NAMESPACE) ?? "";
}

export function chooseNamespace(name) {
  localStorage.setItem(NAMESPACE, name);
}

// silent: the address follows what the view shows already.
export function go(path, { silent = false } = {}) {
  history[silent ? "replaceState" : "pushState"](null, "", path);
  if (!silent) {
    window.dispatchEvent(new Event(SHOWS));
  }
}
