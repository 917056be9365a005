/** The name of a precision as it was asked, by which answers are told apart. */
export const asked = (prediction) => {
  const given = prediction.request?.precision;
  return typeof given === "string" ? given : prediction.precision;
};
