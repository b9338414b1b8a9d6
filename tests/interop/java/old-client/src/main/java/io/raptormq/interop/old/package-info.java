/** What the client of RocketMQ 4 does with topics of either queue type, beside that of RocketMQ 5. */
package io.raptormq.interop.old;
