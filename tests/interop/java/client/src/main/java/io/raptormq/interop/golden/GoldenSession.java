package io.raptormq.interop.golden;

import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.common.message.MessageClientIDSetter;

/**
 * The conversation whose frames become the golden bytes: the official client against a broker behind a recording proxy.
 *
 * <p>Argument: the address of the name server (of its proxy). The encoding of the headers is chosen from outside with {@code
 * -Drocketmq.serialize.type=JSON|ROCKETMQ}, which the client reads once per process; {@code -Djava.net.preferIPv4Stack=true} gives
 * unique ids their usual length.
 */
public final class GoldenSession {
    static final String TOPIC = "golden";
    static final String AUTO_CREATED_TOPIC = "golden_auto";
    static final String CLIENT_IP = "127.0.0.1";

    private GoldenSession() {}

    public static void main(String[] arguments) {
        try {
            run(arguments[0]);
            System.out.println("session complete");
            System.exit(0);
        } catch (Exception error) {
            error.printStackTrace();
            System.exit(1); // the clients' threads would keep the process alive
        }
    }

    private static void run(String nameServer) throws Exception {
        forgetMachineAddress();
        try (AdminPart admin = new AdminPart(nameServer)) {
            admin.createTopics();
            new SendPart(nameServer).run();
            new PullPart(nameServer).run();
            new PushPart(nameServer).run(admin);
            admin.lookAround();
            admin.deleteTopic();
        }
    }

    /** The part of a client's configuration that would otherwise name this machine. */
    static void configure(ClientConfig client, String nameServer, String instance) {
        client.setNamesrvAddr(nameServer);
        client.setClientIP(CLIENT_IP);
        client.setInstanceName(instance);
        client.setVipChannelEnabled(false);
    }

    /** Unique message ids begin with this machine's address in hexadecimal: put 127.0.0.1 there. */
    private static void forgetMachineAddress() throws ReflectiveOperationException {
        Field field = MessageClientIDSetter.class.getDeclaredField("FIX_STRING");
        field.setAccessible(true);
        char[] prefix = (char[]) field.get(null);
        char[] loopback = "7F000001".toCharArray();
        System.arraycopy(loopback, 0, prefix, 0, loopback.length);
    }

    static byte[] utf8(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }
}
