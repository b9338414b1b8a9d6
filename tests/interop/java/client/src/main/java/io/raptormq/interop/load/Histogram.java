package io.raptormq.interop.load;

import java.util.concurrent.atomic.AtomicLongArray;

/** Latencies in buckets that grow with the value: 32 to each doubling, so that a percentile is right within 3 %. */
final class Histogram {
    private static final int SUB_BITS = 5;
    private static final int BUCKETS = (64 - SUB_BITS) << SUB_BITS;

    private final AtomicLongArray counts = new AtomicLongArray(BUCKETS);

    void add(long nanos) {
        counts.incrementAndGet(bucket(Math.max(nanos, 1L << SUB_BITS)));
    }

    /** The value in milliseconds below which a share (0 to 1) of all values lie; 0 without values. */
    double percentileMillis(double share) {
        long total = 0;
        for (int i = 0; i < BUCKETS; i++) {
            total += counts.get(i);
        }
        long wanted = (long) Math.ceil(total * share);
        long seen = 0;
        for (int i = 0; i < BUCKETS; i++) {
            seen += counts.get(i);
            if (seen >= wanted && seen > 0) {
                return lowest(i) / 1e6;
            }
        }
        return 0;
    }

    private static int bucket(long value) {
        int exponent = 63 - SUB_BITS - Long.numberOfLeadingZeros(value);
        int sub = (int) (value >>> exponent) & ((1 << SUB_BITS) - 1);
        return (exponent << SUB_BITS) + sub;
    }

    private static long lowest(int bucket) {
        int exponent = bucket >>> SUB_BITS;
        long sub = bucket & ((1 << SUB_BITS) - 1);
        return ((1L << SUB_BITS) + sub) << exponent;
    }
}
