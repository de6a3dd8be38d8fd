// The kinds, asked of the server once: no kind has a name of its own in these pages.

import { get } from "./api.js";

let asked = null;

export async function kindsByName() {
  asked ??= get("kinds").catch((error) => {
    asked = null;
    throw error;
  });
  const { items } = await asked;
  return Object.fromEntries(items.map((one) => [one.kind, one]));
}
