/** Numbers that must not be mixed up. The brand exists only in the type system. */

declare const brand: unique symbol;
type Branded<Name extends string> = number & { readonly [brand]: Name };

/** Number of a manifest. 0 is the implicit genesis; the first stored manifest is 1. */
export type Version = Branded<"Version">;
/** Position of a batch in the log. */
export type Step = Branded<"Step">;
/** Global row: `step * rows + r`. */
export type Row = Branded<"Row">;
/** Incarnation count of a producer id. */
export type Epoch = Branded<"Epoch">;
/** Number of a batch within its producer. */
export type Seq = Branded<"Seq">;

/** Brands a number as a {@link Version}. */
export const asVersion = (n: number): Version => n as Version;
/** Brands a number as a {@link Step}. */
export const asStep = (n: number): Step => n as Step;
/** Brands a number as a {@link Row}. */
export const asRow = (n: number): Row => n as Row;
/** Brands a number as an {@link Epoch}. */
export const asEpoch = (n: number): Epoch => n as Epoch;
/** Brands a number as a {@link Seq}. */
export const asSeq = (n: number): Seq => n as Seq;
