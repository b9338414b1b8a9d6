/** How the official client divides queues among the members of a group. */
package io.raptormq.interop.rebalance;
