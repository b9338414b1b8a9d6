/** Load that the official client puts on a broker, and how fast the broker took it. */
package io.raptormq.interop.load;
