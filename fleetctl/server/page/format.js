// Writes phases, times and money as the command line writes them.

import { make } from "./dom.js";

const CLASSES = {
  Succeeded: "good", Ready: "good", Cached: "good", Active: "good", Complete: "good",
  Failed: "bad", Lost: "bad", Degraded: "bad", Exceeded: "bad",
  Running: "busy", Starting: "busy", Stopping: "busy", Reconciling: "busy",
  Pending: "waits", Queued: "waits", Waiting: "waits",
  Suspended: "off", Stopped: "off", Cancelled: "off", Deleting: "off",
};

export function phaseClass(phase) {
  return CLASSES[phase] ?? "off";
}

export function phaseMark(phase) {
  return make("span", { class: `phase ${phaseClass(phase)}` }, phase || "-");
}

export function span(seconds) {
  if (seconds === undefined || seconds === null) {
    return "";
  }
  if (seconds < 60) {
    return `${seconds.toFixed(seconds < 10 ? 1 : 0)}s`;
  }
  if (seconds < 3600) {
    return `${Math.floor(seconds / 60)}m${Math.floor(seconds % 60)}s`;
  }
  if (seconds < 86400) {
    return `${Math.floor(seconds / 3600)}h${Math.floor((seconds % 3600) / 60)}m`;
  }
  return `${Math.floor(seconds / 86400)}d${Math.floor((seconds % 86400) / 3600)}h`;
}

export function age(timestamp) {
  return timestamp ? span(Math.max(0, (Date.now() - Date.parse(timestamp)) / 1000)) : "";
}

export function usd(amount) {
  if (amount === undefined || amount === null) {
    return "";
  }
  return `$${amount.toFixed(amount !== 0 && Math.abs(amount) < 1 ? 4 : 2)}`;
}

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

export function bytes(count) {
  const power = count < 1024 ? 0 : Math.min(UNITS.length - 1, Math.floor(Math.log2(count) / 10));
  return `${(count / 1024 ** power).toFixed(power ? 1 : 0)} ${UNITS[power]}`;
}

// The address of an object's page.
export function pageOf(plural, metadata) {
  const parts = [plural, metadata.namespace || "-", metadata.name];
  return `/objects/${parts.map(encodeURIComponent).join("/")}`;
}
