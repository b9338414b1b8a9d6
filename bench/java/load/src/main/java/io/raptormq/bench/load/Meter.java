package io.raptormq.bench.load;

import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.LongAdder;
import org.HdrHistogram.Histogram;
import org.HdrHistogram.Recorder;

/** Counts messages and their latencies; those of the measured part are what came since {@link #begin}. */
final class Meter {
    private static final long LONGEST_PUBLISH_MICROS = TimeUnit.MINUTES.toMicros(1);
    private static final long LONGEST_END_TO_END_MICROS = TimeUnit.HOURS.toMicros(1);
    private static final int DIGITS = 3;

    private final LongAdder sent = new LongAdder();
    private final LongAdder failed = new LongAdder();
    private final LongAdder received = new LongAdder();
    private final Recorder publish = new Recorder(LONGEST_PUBLISH_MICROS, DIGITS);
    private final Recorder endToEnd = new Recorder(LONGEST_END_TO_END_MICROS, DIGITS);
    private volatile Throwable firstError;

    /** What the counters say at a moment. */
    record Counts(long nanos, long sent, long failed, long received) {}

    Counts counts() {
        return new Counts(System.nanoTime(), sent.sum(), failed.sum(), received.sum());
    }

    /** Forgets the latencies of the warm-up. */
    Counts begin() {
        publish.reset();
        endToEnd.reset();
        return counts();
    }

    void answered(long startNanos, Throwable error) {
        if (error != null) {
            failed.increment();
            firstError = firstError == null ? error : firstError;
            return;
        }
        sent.increment();
        publish.recordValue(Math.min(TimeUnit.NANOSECONDS.toMicros(System.nanoTime() - startNanos), LONGEST_PUBLISH_MICROS));
    }

    void received(long bornMillis) {
        received.increment();
        long micros = TimeUnit.MILLISECONDS.toMicros(System.currentTimeMillis() - bornMillis);
        endToEnd.recordValue(Math.min(Math.max(micros, 0), LONGEST_END_TO_END_MICROS));
    }

    Histogram publishMicros() {
        return publish.getIntervalHistogram();
    }

    Histogram endToEndMicros() {
        return endToEnd.getIntervalHistogram();
    }

    /** The first failed send, or null. */
    Throwable firstError() {
        return firstError;
    }
}
