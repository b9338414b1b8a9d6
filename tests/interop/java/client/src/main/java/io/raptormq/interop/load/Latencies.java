package io.raptormq.interop.load;

import java.util.Arrays;

/** Collects latencies of calls while a measurement runs; thread-safe, because asynchronous sends end on many threads. */
final class Latencies {
    private long[] nanos = new long[1 << 16];
    private int count;
    private long messages;
    private long failures;
    private boolean open;

    synchronized void begin() {
        count = 0;
        messages = 0;
        failures = 0;
        open = true;
    }

    synchronized void succeeded(long nanoseconds, int sent) {
        if (!open) {
            return;
        }
        if (count == nanos.length) {
            nanos = Arrays.copyOf(nanos, 2 * count);
        }
        nanos[count++] = nanoseconds;
        messages += sent;
    }

    synchronized void failed() {
        failures++;
    }

    synchronized Measured end() {
        open = false;
        long[] sorted = Arrays.copyOf(nanos, count);
        Arrays.sort(sorted);
        return new Measured(messages, failures, sorted);
    }
}
