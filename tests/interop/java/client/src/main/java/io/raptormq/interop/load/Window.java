package io.raptormq.interop.load;

import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.LongAdder;

/**
 * The time in which a load counts: a warm-up that does not, then a measured part that ends with its time or with its number of messages,
 * whichever comes first (the number bounds the disk).
 */
final class Window {
    private final long maxMessages;
    private final Histogram latencies = new Histogram();
    private final AtomicLong messages = new AtomicLong();
    private final LongAdder failures = new LongAdder();
    private volatile boolean measuring;
    private volatile boolean over;
    private long begin;
    private long end;

    Window(long maxMessages) {
        this.maxMessages = maxMessages;
    }

    boolean isOver() {
        return over;
    }

    /** Notes an answer to a request that was begun at {@code start} and carried so many messages. */
    void answered(long start, int count) {
        if (!measuring) {
            return;
        }
        latencies.add(System.nanoTime() - start);
        if (messages.addAndGet(count) >= maxMessages) {
            finish();
        }
    }

    /** Notes a request that failed. */
    void failed() {
        if (measuring) {
            failures.increment();
        }
    }

    /** Ends the warm-up. */
    void beginMeasuring() {
        begin = System.nanoTime();
        measuring = true;
    }

    /** Waits until the measured part has lasted so long, or has ended by its number of messages. */
    synchronized void awaitEnd(long seconds) throws InterruptedException {
        long deadline = begin + TimeUnit.SECONDS.toNanos(seconds);
        while (!over) {
            long left = deadline - System.nanoTime();
            if (left <= 0) {
                finish();
            } else {
                TimeUnit.NANOSECONDS.timedWait(this, left);
            }
        }
    }

    private synchronized void finish() {
        if (!over) {
            end = System.nanoTime();
            measuring = false;
            over = true;
            notifyAll();
        }
    }

    double seconds() {
        return (end - begin) / 1e9;
    }

    long messages() {
        return messages.get();
    }

    long failures() {
        return failures.sum();
    }

    Histogram latencies() {
        return latencies;
    }
}
