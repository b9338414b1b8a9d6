/**
 * What applications do with the official client, as scenarios that run side by side in one process.
 *
 * <p>A scenario returns an outcome, a map of values that do not depend on time or addresses, so that the outcome on one broker can be
 * compared with the outcome on another.
 */
package io.raptormq.interop.scenarios;
