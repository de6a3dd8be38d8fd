// Reads a view again when something changed. Changes come in crowds, and one look serves all of them. A
// look that failed is taken again, for the change that it missed comes only once; the mark in the head
// shows a lost connection meanwhile.

import { mayPass } from "./api.js";

export const AGAIN_MS = 2000; // after a failed look

const SOON_MS = 20; // a change after a pause is shown almost at once
const LATER_MS = 300;

export function refresher(refresh, signal) {
  let timer = null;
  let last = 0;

  function schedule(afterMs) {
    timer ??= setTimeout(look, afterMs);
  }

  async function look() {
    timer = null;
    last = Date.now();
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
  }

  return () => schedule(Math.max(SOON_MS, last + LATER_MS - Date.now()));
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
