// Reads a view again when something changed. Changes come in crowds, and one look serves all of them;
// a look that fails is no news: the mark in the head shows a lost connection.

const LATER_MS = 300;

export function refresher(refresh, signal) {
  let timer = null;
  return () => {
    timer ??= setTimeout(async () => {
      timer = null;
      if (signal.aborted) {
        return;
      }
      try {
        await refresh();
      } catch (error) {
        console.info("not refreshed", error.message);
      }
    }, LATER_MS);
  };
}
