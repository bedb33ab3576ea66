"""Stand-in for rules_java: Bazel's own toolchain package loads it; nothing here is Java."""

java_binary = native.java_binary
java_import = native.java_import
java_library = native.java_library
java_package_configuration = native.java_package_configuration
java_runtime = native.java_runtime
java_test = native.java_test
java_toolchain = native.java_toolchain
