// The documents that the page read last, by name, and whom it shows them to.

export const seen = {};
export const session = { who: null };

export const operates = () => session.who.role === "operator";
export const OVER = new Set(["done", "partial", "refused", "failed"]);
export const isMoving = () => seen.reconfigurations?.some((change) => !OVER.has(change.state)) ?? false;
