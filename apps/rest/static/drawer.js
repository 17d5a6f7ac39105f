// The drawer at the side, for answers to "why?" and for the last hour of a pair.

import { by, open } from "./dom.js";

export function tell(title, ...parts) {
  by("why-title").textContent = title;
  by("why-text").replaceChildren(...parts);
  open(by("why"));
}
