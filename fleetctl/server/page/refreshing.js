// Reads a view again when something changed. Changes come in crowds, and one look serves all of them;
// a look that fails is no news: the mark in the head shows a lost connection. A view that takes long to
// read is read less often, so that an open page keeps no server busy.

const SOON_MS = 20; // a change after a pause is shown almost at once
const LATER_MS = 300;
const LATER_MS_MAX = 5000;
const REST = 5; // times as long as the look before took

export function refresher(refresh, signal) {
  let timer = null;
  let last = 0;
  let rest = LATER_MS;
  return () => {
    timer ??= setTimeout(async () => {
      timer = null;
      const begun = Date.now();
      last = begun;
      if (signal.aborted) {
        return;
      }
      try {
        await refresh();
      } catch (error) {
        console.info("not refreshed", error.message);
      }
      rest = Math.min(Math.max(LATER_MS, REST * (Date.now() - begun)), LATER_MS_MAX);
    }, Math.max(SOON_MS, last + rest - Date.now()));
  };
}
