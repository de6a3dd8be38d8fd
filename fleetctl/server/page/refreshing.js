// Reads a view again when something changed. Changes come in crowds, and one look serves all of them;
// a look that fails is no news: the mark in the head shows a lost connection.

const SOON_MS = 20; // a change after a pause is shown almost at once
const LATER_MS = 300;

export function refresher(refresh, signal) {
  let timer = null;
  let last = 0;
  return () => {
    timer ??= setTimeout(async () => {
      timer = null;
      last = Date.now();
      if (signal.aborted) {
        return;
      }
      try {
        await refresh();
      } catch (error) {
        console.info("not refreshed", error.message);
      }
    }, Math.max(SOON_MS, last + LATER_MS - Date.now()));
  };
}
