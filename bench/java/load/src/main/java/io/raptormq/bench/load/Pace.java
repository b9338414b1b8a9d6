package io.raptormq.bench.load;

import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;

/** A uniform rate for all producers together: message n is due n intervals after the first. Late ones are sent at once. */
final class Pace {
    private static final double NANOS = TimeUnit.SECONDS.toNanos(1);

    private final AtomicLong next = new AtomicLong();
    private final long interval;
    private final long start = System.nanoTime();

    Pace(int perSecond) {
        interval = Math.round(NANOS / perSecond);
    }

    void await() {
        long due = start + next.getAndIncrement() * interval;
        for (long left = due - System.nanoTime(); left > 0; left = due - System.nanoTime()) {
            LockSupport.parkNanos(left);
        }
    }
}
