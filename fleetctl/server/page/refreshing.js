// Reads a view again when something changed. Changes come in crowds, and one look serves all of them. A
// look that failed is taken again, for the change that it missed comes only once; the mark in the head
// shows a lost connection meanwhile. A view that takes long to read is read less often, so that an open
// page keeps no server busy.

import { mayPass } from "./api.js";

export const AGAIN_MS = 2000; // after a failed look

const SOON_MS = 20; // a change after a pause is shown almost at once
const LATER_MS = 300;
const LATER_MS_MAX = 5000;
const REST = 5; // times as long as the last look took

export function refresher(refresh, signal) {
  let timer = null;
  let last = 0;
  let rest = LATER_MS;

  function schedule(afterMs) {
    timer ??= setTimeout(look, afterMs);
  }

  async function look() {
    timer = null;
    const begun = Date.now();
    last = begun;
    if (signal.aborted) {
      return;
    }
    try {
      await refresh();
    } catch (error) {
      if (!signal.aborted && mayPass(error)) {
        schedule(AGAIN_MS);
      }
    }
    rest = Math.min(Math.max(LATER_MS, REST * (Date.now() - begun)), LATER_MS_MAX);
  }

  return () => schedule(Math.max(SOON_MS, last + rest - Date.now()));
}

// Runs what a person asked for; a failure is reported, unless the person has left the view meanwhile.
export async function carryOut(work, signal, report) {
  try {
    await work();
  } catch (error) {
    if (!signal.aborted) {
      report(error);
    }
  }
}
