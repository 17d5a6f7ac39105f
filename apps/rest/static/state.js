// The last read documents, by name, and the caller to whom the page shows them.

export const seen = {};
export const session = { who: null };

export const operates = () => session.who.role === "operator";
export const OVER = new Set(["done", "partial", "refused", "failed"]);
export const isMoving = () => seen.reconfigurations?.some((change) => !OVER.has(change.state)) ?? false;
