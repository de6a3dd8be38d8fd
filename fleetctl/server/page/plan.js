// A pasted or uploaded manifest: its plan with the cost first, then apply, with consent where work
// would be lost.

import { ApiError, post } from "./api.js";
import { confirmed, make, notice, replace, table } from "./dom.js";
import { namespace } from "./navigation.js";

const FIRST = `kind: BatchJob
name: hello
completions: 3
script: echo hello from task $JOB_COMPLETION_INDEX
`;

export async function showPlan({ main }) {
  const text = make("textarea", { id: "manifest", spellcheck: "false" });
  text.value = FIRST;
  const file = make("input", {
    type: "file",
    id: "file",
    accept: ".yaml,.yml,.json",
    onchange: async () => {
      text.value = await file.files[0].text();
    },
  });
  const reply = make("div", { "aria-live": "polite" });
  const body = () => ({ manifest: text.value, namespace: namespace() || undefined });

  async function plan() {
    replace(reply, make("p", { class: "quiet" }, "planning ..."));
    try {
      const found = await post("plan", body());
      replace(reply, make("h2", {}, "Plan"), planView(found), apply);
    } catch (error) {
      replace(reply, errorView(error));
    }
  }

  async function send(more) {
    try {
      const done = await post("apply", { ...body(), ...more });
      const lines = (done.results ?? []).map((one) => `${one.key} ${one.outcome} ${one.message ?? ""}`);
      replace(reply, make("h2", {}, "Applied"), notice(lines.join("\n")), make("a", { href: "/objects" }, "Objects"));
    } catch (error) {
      const consent = error instanceof ApiError && error.code === 3 && !more.yes;
      if (consent && (await confirmed("Apply all the same?", error.message.split("\n"), "Apply"))) {
        await send({ yes: true });
      } else {
        replace(reply, errorView(error));
      }
    }
  }

  const apply = make("button", { onclick: () => send({}) }, "Apply");
  replace(
    main,
    make("h1", {}, "Plan and apply"),
    make("p", { class: "quiet" }, "Nothing is stored or started before you press Apply."),
    make("div", { class: "bar" }, make("label", { for: "file" }, "File"), file),
    make("label", { for: "manifest" }, "Manifest"),
    text,
    make("div", { class: "bar" }, make("button", { onclick: plan }, "Plan")),
    reply,
  );
  return {};
}

// The report is in the words of `fleetctl plan`: `shown` has the cells of an object, and the sums.
function planView(found) {
  const { objects = [], risks = [], shown } = found.plan ?? {};
  const findings = (found.findings ?? []).map(findingView);
  const warnings = (found.warnings ?? []).map((one) => notice(String(one)));
  const dangers = risks.map((one) => notice(`${one.risk}: ${one.object} ${one.message}`));
  const rows = objects.map((one) =>
    make(
      "tr",
      {},
      make("td", {}, one.object),
      make("td", {}, one.action),
      make("td", { class: "wide" }, one.shown.units),
      make("td", { class: "wide" }, one.shown.where),
      make("td", {}, one.shown.cost),
    ),
  );
  return [
    findings,
    warnings,
    dangers,
    table(["Object", "Action", "Work", "Where", "Cost"], rows, "Plan"),
    shown && make("p", {}, "Cost of this apply: ", make("b", {}, shown.cost), `, in total ${shown.total}`),
  ].flat();
}

function errorView(error) {
  const findings = error.body?.findings ?? [];
  return findings.length ? findings.map(findingView) : notice(error.message, error.hint, true);
}

function findingView({ file, line, column, message, hint }) {
  const place = [file, line, column].filter(Boolean).join(":");
  return notice(place ? `${place}: ${message}` : message, hint, true);
}
