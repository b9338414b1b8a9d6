package io.raptormq.bench.load;

import java.util.Random;
import java.util.concurrent.ThreadLocalRandom;

/** A pool of bodies, half random and half zero bytes, as in the workloads with randomized payloads. */
final class Bodies {
    private static final int POOL = 1000;

    private final byte[][] bodies;

    Bodies(int size) {
        bodies = new byte[POOL][size];
        Random random = new Random(1);
        byte[] half = new byte[size / 2];
        for (byte[] body : bodies) {
            random.nextBytes(half);
            System.arraycopy(half, 0, body, 0, half.length);
        }
    }

    byte[] any() {
        return bodies[ThreadLocalRandom.current().nextInt(POOL)];
    }
}
