package io.raptormq.interop.versions;

import java.io.File;
import java.io.IOException;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * Runs one program on several class paths in one JVM, each with a class loader and a thread of its own: starting a JVM costs more than
 * loading a second version of the client.
 *
 * <p>Arguments: the program's class, and for each run "--", its class path (as for -cp), and its arguments. The program has a method
 * {@code static void run(String[])}. The exit code is 1 if one of the runs fails.
 */
public final class SideBySide {
    private static final String NEXT = "--";

    private SideBySide() {}

    public static void main(String[] arguments) throws Exception {
        AtomicInteger failures = new AtomicInteger();
        List<Thread> running = new ArrayList<>();
        for (List<String> run : runs(Arrays.asList(arguments).subList(1, arguments.length))) {
            ClassLoader loader = new URLClassLoader(urls(run.get(0)), ClassLoader.getPlatformClassLoader());
            Method program = Class.forName(arguments[0], true, loader).getMethod("run", String[].class);
            Thread thread = new Thread(() -> {
                try {
                    program.invoke(null, (Object) run.subList(1, run.size()).toArray(new String[0]));
                } catch (InvocationTargetException fault) {
                    fault.getCause().printStackTrace();
                    failures.incrementAndGet();
                } catch (IllegalAccessException fault) {
                    throw new IllegalStateException(fault);
                }
            });
            thread.setContextClassLoader(loader);
            thread.start();
            running.add(thread);
        }
        for (Thread each : running) {
            each.join();
        }
        System.exit(Math.min(failures.get(), 1)); // clients of a failed run may still run
    }

    private static List<List<String>> runs(List<String> arguments) {
        List<List<String>> runs = new ArrayList<>();
        for (String argument : arguments) {
            if (argument.equals(NEXT)) {
                runs.add(new ArrayList<>());
            } else {
                runs.get(runs.size() - 1).add(argument);
            }
        }
        return runs;
    }

    private static URL[] urls(String classPath) throws IOException {
        List<URL> urls = new ArrayList<>();
        for (String entry : classPath.split(File.pathSeparator)) {
            if (entry.endsWith("/*")) {
                try (DirectoryStream<Path> jars = Files.newDirectoryStream(Path.of(entry.substring(0, entry.length() - 2)), "*.jar")) {
                    for (Path jar : jars) {
                        urls.add(jar.toUri().toURL());
                    }
                }
            } else {
                urls.add(Path.of(entry).toUri().toURL());
            }
        }
        return urls.toArray(new URL[0]);
    }
}
